//! The table of system calls compiled into seccomp programs.
//!
//! One program per answer, because a program knows one; the kernel takes the strictest. What holds for everyone is installed once
//! in the tool host, from which every child inherits it, so a child only adds the few rules its grants decide.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::SandboxError;
use super::abi::Abi;
use super::grants::ChildGrants;
use super::syscalls::{Answer, Grant, Is, REFUSALS, Refusal, Test, Who};

/// A compiled program and the number of table entries in it.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) program: BpfProgram,
    pub(crate) entries: usize,
}

/// What the tool host has, and every child inherits.
pub(crate) fn host_filters(abi: Abi) -> Result<Vec<Filter>, SandboxError> {
    compile(|refusal| matches!(refusal.who, Who::Everyone | Who::ToolSide) && holds(refusal, abi))
}

/// What the worker has.
pub(crate) fn worker_filters(abi: Abi) -> Result<Vec<Filter>, SandboxError> {
    compile(|refusal| matches!(refusal.who, Who::Everyone | Who::Worker) && holds(refusal, abi))
}

/// What one child has besides: the few entries that its grants decide.
pub(crate) fn child_filters(grants: &ChildGrants, abi: Abi) -> Result<Vec<Filter>, SandboxError> {
    compile(|refusal| {
        let mine = match refusal.who {
            Who::Everyone | Who::ToolSide | Who::Worker => false,
            Who::ChildrenWithout(Grant::Network) => !grants.network,
            Who::ChildrenWithout(Grant::UnixSockets) => !grants.unix_sockets,
        };
        mine && holds(refusal, abi)
    })
}

fn holds(refusal: &Refusal, abi: Abi) -> bool {
    refusal.below.is_none_or(|bound| abi < bound)
}

fn compile(wanted: impl Fn(&Refusal) -> bool) -> Result<Vec<Filter>, SandboxError> {
    let mut filters = Vec::new();
    for answer in Answer::ALL {
        let entries: Vec<&Refusal> =
            REFUSALS.iter().filter(|refusal| refusal.answer == answer && wanted(refusal)).collect();
        if entries.is_empty() {
            continue;
        }
        let mut program = compile_answer(&entries, answer).map_err(refused)?;
        program.splice(0..0, other_tables());
        filters.push(Filter { program, entries: entries.len() });
    }
    Ok(filters)
}

fn compile_answer(
    entries: &[&Refusal],
    answer: Answer,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for refusal in entries {
        for number in refusal.calls.iter().filter_map(|call| call.number) {
            let chain = rules.entry(number).or_default();
            for clause in refusal.clauses {
                let tests = clause.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
                chain.push(SeccompRule::new(tests)?);
            }
        }
    }
    let refuse = SeccompAction::Errno(answer.errno().unsigned_abs());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

fn condition(test: &Test) -> Result<SeccompCondition, seccompiler::BackendError> {
    let (operator, value) = match test.is {
        Is::Equal(value) => (SeccompCmpOp::Eq, value),
        Is::NotEqual(value) => (SeccompCmpOp::Ne, value),
        Is::Masked { mask, value } => (SeccompCmpOp::MaskedEq(u64::from(mask)), value),
    };
    SeccompCondition::new(test.argument, SeccompCmpArgLen::Dword, operator, u64::from(value))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err takes")]
fn refused(error: seccompiler::BackendError) -> SandboxError {
    SandboxError::Filter { problem: error.to_string() }
}

/// x32 shares x86-64's architecture value and marks its numbers with bit 30: the compiler's own check lets it pass.
#[cfg(target_arch = "x86_64")]
fn other_tables() -> [sock_filter; 3] {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    [
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: X32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_KILL_PROCESS },
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn other_tables() -> [sock_filter; 0] {
    []
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sandbox::syscalls::Syscall;

    const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

    /// `struct seccomp_data` by 32-bit words.
    fn words(number: u32, architecture: u32, arguments: [u64; 6]) -> Vec<u32> {
        let halves =
            arguments.into_iter().flat_map(|argument| [argument & 0xffff_ffff, argument >> 32]);
        let halves = halves.map(|half| u32::try_from(half).unwrap());
        [number, architecture, 0, 0].into_iter().chain(halves).collect()
    }

    /// The classic BPF that the compiler emits: loads, masks, comparisons, jumps, returns.
    fn interpret(program: &[sock_filter], data: &[u32]) -> u32 {
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let instruction = &program[at];
            at += 1;
            let jump =
                |holds: bool| usize::from(if holds { instruction.jt } else { instruction.jf });
            match instruction.code {
                0x20 => accumulator = data[instruction.k as usize / 4],
                0x54 => accumulator &= instruction.k,
                0x05 => at += instruction.k as usize,
                0x15 => at += jump(accumulator == instruction.k),
                0x25 => at += jump(accumulator > instruction.k),
                0x35 => at += jump(accumulator >= instruction.k),
                0x06 => return instruction.k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    /// The strictest answer of several programs, as the kernel takes it; among equal ones it does not matter.
    fn answer(filters: &[Filter], data: &[u32]) -> u32 {
        let answers = filters.iter().map(|filter| interpret(&filter.program, data));
        answers
            .min_by_key(|answer| (*answer & libc::SECCOMP_RET_ACTION_FULL).cast_signed())
            .unwrap_or(ALLOW)
    }

    fn holds_for(test: &Test, arguments: [u64; 6]) -> bool {
        let value = u32::try_from(arguments[usize::from(test.argument)] & 0xffff_ffff).unwrap();
        match test.is {
            Is::Equal(wanted) => value == wanted,
            Is::NotEqual(unwanted) => value != unwanted,
            Is::Masked { mask, value: wanted } => value & mask == wanted,
        }
    }

    /// What the table says, read entry by entry.
    fn expected(refusals: &[&Refusal], call: &Syscall, arguments: [u64; 6]) -> u32 {
        let refused = refusals.iter().find(|refusal| {
            let clauses = refusal.clauses;
            let applies = clauses.is_empty()
                || clauses.iter().any(|tests| tests.iter().all(|test| holds_for(test, arguments)));
            refusal.calls.contains(call) && applies
        });
        refused.map_or(ALLOW, |refusal| {
            libc::SECCOMP_RET_ERRNO | refusal.answer.errno().unsigned_abs()
        })
    }

    /// Values on both sides of every test an argument is put to, with rubbish in the upper half too.
    fn candidates(refusals: &[&Refusal], call: &Syscall, argument: u8) -> Vec<u64> {
        let mut values = vec![0, 1];
        let tests = refusals
            .iter()
            .filter(|refusal| refusal.calls.contains(call))
            .flat_map(|refusal| refusal.clauses);
        for test in tests.copied().flatten().filter(|test| test.argument == argument) {
            let value = match test.is {
                Is::Equal(value) | Is::NotEqual(value) | Is::Masked { value, .. } => {
                    u64::from(value)
                }
            };
            values.extend([value, value + 1, value | 0o4000, value | 0xdead_beef_0000_0000]);
        }
        values.sort_unstable();
        values.dedup();
        values
    }

    fn every_combination(refusals: &[&Refusal], call: &Syscall) -> Vec<[u64; 6]> {
        (0..6u8).fold(vec![[0; 6]], |so_far, argument| {
            let values = candidates(refusals, call, argument);
            so_far
                .into_iter()
                .flat_map(|arguments| {
                    values.iter().map(move |value| {
                        let mut arguments = arguments;
                        arguments[usize::from(argument)] = *value;
                        arguments
                    })
                })
                .collect()
        })
    }

    fn check(filters: &[Filter], wanted: impl Fn(&Refusal) -> bool) {
        let refusals: Vec<&Refusal> = REFUSALS.iter().filter(|refusal| wanted(refusal)).collect();
        let entries: usize = filters.iter().map(|filter| filter.entries).sum();
        assert_eq!(entries, refusals.len());
        for call in REFUSALS.iter().flat_map(|refusal| refusal.calls) {
            let Some(number) = call.number else { continue };
            let number = u32::try_from(number).unwrap();
            for arguments in every_combination(&refusals, call) {
                let data = words(number, ARCHITECTURE, arguments);
                let wanted = expected(&refusals, call, arguments);
                assert_eq!(answer(filters, &data), wanted, "{} {arguments:x?}", call.name());
            }
        }
        for harmless in [libc::SYS_read, libc::SYS_execve, libc::SYS_kill, libc::SYS_fchmodat] {
            if refusals
                .iter()
                .any(|refusal| refusal.calls.iter().any(|call| call.number == Some(harmless)))
            {
                continue;
            }
            let data = words(u32::try_from(harmless).unwrap(), ARCHITECTURE, [u64::MAX; 6]);
            assert_eq!(answer(filters, &data), ALLOW);
        }
    }

    fn abis() -> [Abi; 2] {
        [Abi(2), Abi::NEWEST_USED]
    }

    #[test]
    fn the_compiled_programs_say_what_the_table_says() {
        for abi in abis() {
            check(&host_filters(abi).unwrap(), |refusal| {
                matches!(refusal.who, Who::Everyone | Who::ToolSide) && holds(refusal, abi)
            });
            check(&worker_filters(abi).unwrap(), |refusal| {
                matches!(refusal.who, Who::Everyone | Who::Worker) && holds(refusal, abi)
            });
        }
    }

    #[test]
    fn a_child_has_the_entries_of_the_grants_it_lacks() {
        for (network, unix_sockets) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let grants = ChildGrants {
                network,
                unix_sockets,
                ..ChildGrants::new(PathBuf::from("/work"), PathBuf::from("/tmp"))
            };
            check(&child_filters(&grants, Abi::NEWEST_USED).unwrap(), |refusal| {
                match refusal.who {
                    Who::ChildrenWithout(Grant::Network) => !network,
                    Who::ChildrenWithout(Grant::UnixSockets) => !unix_sockets,
                    Who::Everyone | Who::ToolSide | Who::Worker => false,
                }
            });
        }
    }

    #[test]
    fn no_call_has_two_answers_in_one_process() {
        for refusal in REFUSALS {
            for other in REFUSALS.iter().filter(|other| other.answer != refusal.answer) {
                for call in refusal.calls.iter().filter(|call| other.calls.contains(call)) {
                    let apart = (refusal.who == Who::Worker) != (other.who == Who::Worker)
                        && ![refusal.who, other.who].contains(&Who::Everyone);
                    assert!(apart, "{}", call.name());
                }
            }
        }
    }

    #[test]
    fn another_architecture_and_x32_are_killed() {
        for filters in
            [host_filters(Abi::NEWEST_USED).unwrap(), worker_filters(Abi::NEWEST_USED).unwrap()]
        {
            // i386, and this architecture with the other byte order.
            for other in [0x4000_0003, ARCHITECTURE ^ 0x4000_0000] {
                assert_eq!(answer(&filters, &words(0, other, [0; 6])), KILL);
            }
            if cfg!(target_arch = "x86_64") {
                assert_eq!(answer(&filters, &words(0x4000_0000, ARCHITECTURE, [0; 6])), KILL);
            }
        }
    }
}
