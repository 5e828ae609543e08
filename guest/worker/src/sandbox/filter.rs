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
        for call in refusal.calls {
            let chain = rules.entry(call.number).or_default();
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
