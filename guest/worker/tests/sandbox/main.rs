//! The sandbox and the bounded runner on the running kernel, for any user. Every refusal first proves that the same act succeeds
//! without the rule.
//!
//! Needs: git, gcc, make, python3 with venv, tar, coreutils, and a Rust toolchain; Landlock ABI 6.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../stage/mod.rs"]
mod stage;

mod absence;
mod bounds;
mod files;
mod lifetime;
mod network;
mod processes;

use std::io::{Read, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    stage::run(
        plays![
            absence::this_kernel_has_landlock,
            absence::a_kernel_built_without_landlock_runs_children_and_claims_nothing,
            absence::a_kernel_with_landlock_switched_off_runs_children_and_claims_nothing,
            absence::a_probe_that_cannot_tell_is_an_error_and_starts_nothing,
            bounds::returns_what_a_program_wrote_and_how_it_ended,
            bounds::feeds_input_and_closes_it,
            bounds::arguments_and_paths_need_not_be_text,
            bounds::ends_at_the_deadline_although_a_reader_waits_for_a_fifo,
            bounds::a_program_that_ends_when_asked_may_tidy_up_at_the_deadline,
            bounds::kills_what_a_program_leaves_behind,
            bounds::kills_a_double_forked_daemon_that_ignores_requests_to_end,
            bounds::kills_descendants_below_a_reaper_of_their_own_and_those_that_are_stopped,
            bounds::a_gibibyte_of_output_ends_the_call_at_the_cap,
            bounds::a_process_that_burns_its_processor_time_is_ended,
            bounds::processor_time_is_counted_over_the_whole_tree,
            bounds::a_storm_of_forks_is_bounded_and_gone,
            bounds::a_call_is_cancelled_from_another_thread,
            bounds::a_child_that_cannot_start_says_which_step_failed_and_never_looks_like_an_exit,
            bounds::a_program_whose_first_thread_has_ended_is_not_taken_for_gone,
            bounds::a_role_of_this_binary_runs_as_a_child,
            bounds::a_child_leads_a_session_of_its_own_with_default_signals_and_its_limits,
            bounds::refuses_to_fork_or_narrow_with_a_second_thread,
            files::moving_linking_and_copying_between_directories_works,
            files::git_commits_and_a_c_program_is_compiled_linked_and_made,
            files::a_python_environment_is_made_and_used,
            files::cargo_builds_and_runs_a_crate_of_two_files,
            files::neither_the_run_directory_nor_a_neighbour_can_be_reached,
            files::a_toolchain_can_be_run_but_not_changed,
            files::below_abi_3_the_filter_stands_in_for_truncation,
            files::a_temporary_directory_is_private_and_empty_at_each_call,
            files::a_missing_granted_path_is_reported_and_the_other_rules_apply,
            files::the_place_of_temporary_directories_must_be_one_the_base_layer_contains,
            files::attributes_are_unsupported_rather_than_forbidden,
            files::named_shared_memory_needs_its_grant_and_cannot_be_listed,
            files::devices_other_than_the_plain_ones_are_closed,
            files::the_worker_reads_the_control_half_and_writes_its_own,
            files::an_ordinary_failure_looks_like_one,
            lifetime::a_killed_worker_leaves_no_tool_host_and_no_child,
            lifetime::a_killed_tool_host_takes_its_children_with_it_and_the_worker_hears_of_it,
            lifetime::a_tool_host_shrugs_off_requests_to_end_and_ends_with_its_socket,
            lifetime::dropping_a_tool_host_ends_it,
            lifetime::a_stopped_tool_host_is_given_up_with_everything_below_it,
            files::a_grant_that_contains_the_run_directory_is_refused,
            lifetime::threads_may_start_once_the_tool_host_is_forked,
            network::without_a_network_grant_there_is_no_internet_socket_and_no_name_is_asked_for,
            network::a_granted_port_can_be_dialled_and_no_other_and_nothing_listens,
            network::below_abi_4_any_port_can_be_dialled_and_that_is_said,
            network::ways_to_a_port_that_pass_landlock_are_refused_by_the_filter,
            network::unix_sockets_by_name_need_their_grant,
            network::abstract_sockets_of_others_stay_closed_even_with_the_grant,
            network::a_worker_dials_its_port_and_nothing_else_and_starts_nothing,
            network::below_abi_4_a_worker_says_that_its_port_is_not_held,
            processes::a_child_has_neither_the_environment_nor_the_descriptors_of_its_worker,
            processes::the_memory_and_environment_of_worker_and_tool_host_are_closed,
            processes::without_landlock_worker_and_tool_host_are_still_closed,
            processes::signals_end_at_the_sandbox,
            processes::below_abi_6_signals_reach_other_processes_and_that_is_said,
            processes::other_processes_cannot_be_traced_read_limited_or_slowed,
            processes::a_new_namespace_is_refused_and_clone3_is_unknown,
            processes::a_program_of_another_system_call_table_dies,
            processes::shared_kernel_objects_are_refused,
            processes::a_role_is_confined_like_any_other_child,
        ],
        play_role,
    )
}

/// What this binary does when it is executed as a hidden role.
fn play_role(role: &str) {
    let mut input = String::new();
    let mut out = std::io::stdout();
    match role {
        "worker" => lifetime::play_worker(),
        "echo" => {
            std::io::stdin().read_to_string(&mut input).unwrap();
            write!(out, "echo: {input}").unwrap();
        }
        "read" => {
            std::io::stdin().read_to_string(&mut input).unwrap();
            match std::fs::read_to_string(&input) {
                Ok(text) => write!(out, "{text}").unwrap(),
                Err(error) => write!(out, "{:?}", error.kind()).unwrap(),
            }
        }
        other => panic!("no role {other}"),
    }
}
