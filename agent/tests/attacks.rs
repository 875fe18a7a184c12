//! Attacks on real containers, held by real shims. Needs root.
//!
//! | class | test |
//! |---|---|
//! | runtime overwritten through /proc/self/exe | `the_shim_cannot_be_overwritten_through_proc` |
//! | leaked descriptor, working folder or program outside | `no_descriptor_of_the_host_is_a_way_out` |
//! | masked path through a /dev/null of the image | `what_the_image_has_below_dev_does_not_count` |
//! | /dev/pts, /dev/console of the image | `what_the_image_has_below_dev_does_not_count` |
//! | /dev, /proc, /sys, /tmp of the image are links | `a_root_file_system_with_links_for_folders_is_refused` |
//! | writes redirected from procfs | not by us: nothing is written to /proc from inside; ids are mapped from the host's side |
//! | links and races at mount targets | `a_bind_never_lands_behind_a_link`, `a_bind_below_a_volume_does_not_lose_a_race_against_links` |
//! | mounts that spread, devices and writes through volumes | `mounts_do_not_spread_either_way`, `a_volume_brings_no_devices_and_read_only_holds_below` |
//! | cgroup writes, release_agent | `kernel_files_cannot_be_written_and_secrets_not_read`, `every_dangerous_call_is_refused_to_everybody` |
//! | names that are paths | `names_that_are_paths_reach_nothing` |
//! | wrong user | `who_a_process_runs_as_is_never_the_hosts_root`, `every_process_on_the_host_is_in_the_containers_range` |
//! | capabilities, no_new_privs, seccomp | `rights_are_exactly_the_list_and_the_first_process_has_none` |
//! | setuid programs, files of unmapped ids | `a_setuid_program_gains_nothing_and_strangers_files_are_not_writable` |
//! | refused calls, by whatever number; TIOCSTI; keyrings; vsock | `every_dangerous_call_is_refused_to_everybody`, `other_numbers_for_the_same_calls_lead_nowhere` |
//! | host's sockets, loopback, links | `the_hosts_sockets_and_network_are_out_of_reach`; the rest in `net.rs` |
//! | log folder swapped, log flood | `a_log_cannot_be_reached_nor_overflow` |
//! | pid reuse, kill races | `an_ended_process_cannot_be_signalled_and_no_stranger_is` |
//! | the shim made to wait | `who_stops_everything_inside_does_not_stop_the_shim`, `files_that_never_end_or_never_begin_do_not_stop_the_shim` |
//! | processes, memory, open files | `a_fork_bomb_leaves_the_shim_answering`, `memory_counts_what_is_put_into_memory_files`, `open_files_are_limited_for_good` |
//! | layers: `..`, links, devices, bombs | `src/image/unpack/tests.rs`, `image.rs` |
//! | ids that are prefixes of one another, host namespaces on request | do not apply yet: there is no policy and no such request |
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "attacks/bounds.rs"]
mod bounds;
#[path = "attacks/cell.rs"]
mod cell;
#[path = "attacks/compare.rs"]
mod compare;
#[path = "attacks/probe.rs"]
mod probe;
mod stage;
#[path = "attacks/ways_in.rs"]
mod ways_in;
