//! Conformance: one body per behaviour; [`suite!`] makes a test of each on one kind of world.
//!
//! A body drives all ranks of a small job from one thread, so that it can say in which order things
//! happen and count packets exactly. The engines are the production ones; the world decides what they
//! run over: the simulated fabric, or real libfabric endpoints in one process.
#![allow(unsafe_code)] // the engine's unsafe calls; buffers live in the bodies

pub mod behaviour;
pub mod constructors;
pub mod ghosts;
pub mod hostile;
pub mod imposed;
pub mod in_process;
mod requests;
pub mod simulated;
mod windows;
mod world;

pub use world::{Driver, Spec, World};

/// Runs a body. One that is listed among those that `differ` on this kind of world has to fail there, and as it is known
/// to, or the list is wrong.
/// It is no generic function: there are thousands of tests, and it would be compiled for each.
pub fn run(name: &str, differ: &[&str], body: &dyn Fn()) {
    if !differ.contains(&name) {
        return body();
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    let Err(payload) = outcome else {
        panic!("{name} holds here as well: take it off the list of what differs");
    };
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let said = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(differs_as_known(name, said), "{name} does not hold here, but not as it is known to: {said}");
}

/// Whether what a body said where it does not hold is what is known of it. What never ends is no difference, whoever it is.
fn differs_as_known(name: &str, said: &str) -> bool {
    let known = SAID.iter().find(|(body, _)| *body == name);
    let is_known = known.is_none_or(|(_, parts)| parts.iter().any(|part| said.contains(part)));
    is_known && !NEVER_ENDS.iter().any(|part| said.contains(part))
}

/// What a world says of calls that do not end.
const NEVER_ENDS: [&str; 2] = ["hangs: ", "never happens: "];

/// Parts, one of which a body says where it does not hold. Bodies that are not here count packets and round trips.
const SAID: &[(&str, &[&str])] = &[
    ("locked_or_exposed", &["an epoch error was due, not Ok(())"]),
    ("oneself_before_its_post", &["the own window is not exposed yet"]),
    ("one_call_issues_for_its_target_or_its_window", &["nobody has asked for anything"]),
    (
        "ranges_known_late",
        &["a range error about rank 1 was due, not Ok(())", "Range { call: Put, target: Rank(1)"],
    ),
];

/// Makes one `#[test]` per behaviour. `$make` is a function from [`Spec`] to `$world`, a [`World`]. Bodies that
/// cannot hold on the kind of world are named behind `differ`, with the reason beside them.
#[macro_export]
macro_rules! suite {
    ($name:ident, $world:ty, $make:expr $(, differ: $($differs:ident),+)?) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            const DIFFER: &[&str] = &[$($(stringify!($differs)),+)?];

            // One function and pointers to it: what makes the world is compiled once for each suite, and the
            // bodies once for each kind of endpoint, not for each test.
            fn make(spec: $crate::Spec) -> $world {
                ($make)(spec)
            }

            $crate::suite!(@tests
                counts: single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, large_puts_carry_unlock,
                    a_large_put_carries_complete,
                    the_rest_of_a_large_accumulate_carries_done,
                    no_check_needs_no_lock, lock_all_touches_only_its_targets, flush_of_nothing_is_free,
                    fence_no_precede_returns_at_once, closing_fence, fence_follows_its_puts,
                    puts_ride_where_packets_cost_as_much, every_switch_has_a_price;
                operations: every_type_and_reduction, puts_and_gets_of_all_sizes, fetching_operations,
                    operations_on_oneself, zero_bytes, switches_never_change_results;
                locks: exclusive_excludes, first_come_first_served, full_queue_asks_again,
                    operations_wait_with_their_lock, lock_all_counts, own_window_is_locked_at_once, abandoned_lock_is_nobodys;
                resumed: an_unlock_is_called_again, a_complete_is_called_again, a_window_comes_while_another_goes;
                fences: everybody_sees_everything, fences_in_a_row, fence_then_lock;
                info: no_locks_refuses_locks, what_ranks_say_differently_is_not_in_force, options_are_reported,
                    set_info_changes_what_can_change, same_size_is_believed, same_size_is_verified_when_checking,
                    allocated_memory_is_aligned, coarse_accumulates_are_messages, checking_takes_messages,
                    attributes_are_what_was_given, the_separate_model_can_be_chosen, sync_belongs_to_passive_epochs,
                    errors_of_one_rank_are_everybodys;
                hints: accumulates_without_order_do_not_wait, accumulates_are_ordered_in_part,
                    results_without_order_carry_the_acknowledgement, windows_without_locks_are_smaller;
                dynamic: attached_memory_is_accessed_by_address, detached_memory_is_an_error, what_went_may_come_again,
                    accesses_stay_in_one_region, attached_regions_do_not_overlap, attach_wants_a_dynamic_window,
                    attach_wants_memory, many_regions, own_regions, kinds_of_windows_must_agree, dynamic_attributes,
                    dynamic_windows_are_fenced, waiting_operations_find_the_region_gone, detach_waits_for_nobody,
                    every_operation_on_regions;
                regions: large_transfers_are_native, a_region_is_asked_for_once, regions_change_between_accesses,
                    detach_waits_for_transfers, more_regions_than_records, more_origins_than_holders,
                    small_regions_take_messages, native_accesses_stay_in_one_region, a_region_goes_half_way,
                    regions_with_few_elements, regions_of_two_windows, regions_detached_by_all_at_once;
                regions_epochs: regions_under_fences, regions_under_post_and_start, notified_puts_to_regions,
                    requests_to_regions, regions_wait_for_the_lock, regions_under_all_switches,
                    regions_detached_behind_puts;
                checker: two_puts_in_a_fence_epoch, two_puts_between_post_and_wait, no_put_is_promised_by_fence,
                    no_put_ends_with_an_empty_epoch, no_put_is_promised_by_post, notified_data_are_the_targets,
                    one_rank_conflicts_with_itself, accumulates_meet_accumulates,
                    own_operations_conflict_with_others, local_accesses_conflict_by_model,
                    unflushed_updates_under_shared_locks, ordered_accesses_are_no_conflict, only_who_asks_is_checked,
                    the_setting_checks_every_window, the_table_is_bounded, an_order_call_is_no_conflict;
                shared: locks_are_held_on_return, fences_wait_for_everybody, start_waits_for_posts,
                    locks_that_were_given_up_are_nobodys, who_cannot_map_fails_all;
                overlapping: fences_on_both_make_updates_visible, parts_have_their_own_bounds,
                    epochs_are_each_windows_own, one_goes_and_the_other_stays;
                misuse: outside_epochs, wrong_arguments, collective_calls_must_agree, a_fence_is_not_met_by_free, out_of_range,
                    empty_windows;
                requests: every_request_form, requests_are_passive, small_requests_are_done_at_once,
                    waiting_lets_operations_leave, a_request_waits_for_its_data, dropped_requests,
                    requests_outlive_their_epoch, requests_to_many_targets, failed_requests, failed_requests_are_remembered,
                    requests_with_few_elements, requests_wait_for_the_lock, requests_under_all_switches,
                    operations_to_no_rank;
                notify: data_before_their_notification, notifications_cost_one_packet, notifications_keep_their_order,
                    notifications_of_many_origins, no_notification_of_a_failed_put, words_that_cannot_be_notified,
                    words_that_are_refused_at_once,
                    notifications_without_data, notifications_with_few_elements, notifications_under_all_switches,
                    notifications_in_a_fence_epoch, notifications_and_marks, notifications_wait_for_the_lock,
                    notifications_without_data_keep_their_turn, notified_puts_are_left_behind_by_complete,
                    the_end_of_an_epoch_is_behind_its_notifications;
                words: words_are_aligned_by_address, bases_that_are_alike_are_judged_at_once, words_of_shared_parts,
                    words_of_regions;
                ordering: accumulates_of_one_origin_are_ordered, large_accumulates_are_ordered,
                    accumulates_that_wait_are_ordered, accumulates_are_atomic, a_flag_behind_its_data,
                    any_operation_behind_any, order_among_packets_is_free, order_ends, order_with_few_elements,
                    order_in_a_fence_epoch, order_outside_epochs;
                flushes: a_flush_that_nobody_waits_for, what_is_repeated_ends_with_its_epoch,
                    what_is_repeated_overtakes_nothing, later_operations_delay_nothing, many_flushes_under_way,
                    flushes_of_all_and_local, flushes_of_nothing, flush_requests_outlive_their_epoch,
                    flushes_with_few_elements, targets_are_flushed_together, targets_of_others_are_not_waited_for,
                    flush_requests_report_errors;
                pscw: lectures_program, start_never_waits, puts_wait_for_the_post, weak_synchronization,
                    received_between_post_and_wait, weak_epochs_in_a_row, each_target_when_it_posts,
                    nobody_in_the_group, no_operations_are_a_match_too, oneself_in_the_group,
                    oneself_before_its_post, wait_is_for_every_origin, test_tells_when_it_is_over,
                    access_and_exposure_overlap, every_operation, gets_read_what_was_there_at_post,
                    large_transfers, two_windows_at_once, switches_change_nothing;
                pscw_notices: notices_come_early, notices_without_room, answers_that_come_late,
                    no_check_needs_no_notice, other_promises_need_the_notice, notices_that_nobody_wants,
                    metadata_come_with_the_notice, ranges_known_late, elements_run_out;
                pscw_rules: posts_are_seen_by_who_wants_them, what_is_over_at_once, costs_of_an_epoch, costs_with_results,
                    costs_without_operations, calls_that_do_not_fit, members_only, locked_or_exposed, fences_around,
                    free_waits_for_what_is_left, every_opening_waits_for_what_is_left, promises_that_do_not_hold;
                resources: one_element_of_each, window_protocol, window_protocol_releases_after_errors, windows_come_and_go,
                    windows_made_while_operations_are_under_way, uneven_windows, windows_over_the_users_memory,
                    many_targets_with_few_elements, flush_local_frees_buffers;
                few_targets: locks_are_known_without_elements, locks_wait_for_no_element, an_unlock_keeps_its_element,
                    a_lock_without_element_is_closed_once, refused_operations_leave_no_element;
                repeated_locks: what_comes_between_finds_the_epoch, what_is_refused_leaves_the_epoch,
                    others_come_in_between, its_puts_and_gets_stay_inside, epochs_within_epochs;
                repeated_packets: what_comes_before_the_flush, what_comes_while_a_flush_waits, a_flush_that_was_left,
                    each_stays_inside;
                late_errors: every_locks_error_is_reported, errors_outlast_the_next_element,
                    errors_of_epochs_of_all_ranks, errors_of_many_ranks;
                threads: operation_between_two_flushes, a_flush_ends_while_others_post, operation_during_a_fence, closing_twice_at_once;
                routines: one_call_issues_for_its_target_or_its_window, every_window_goes_on_by_itself,
                    the_threshold_ends_the_waiting, elements_stay_until_they_are_needed;
                rules: access_epochs_are_disjoint, epochs_of_two_windows, locks_of_two_windows,
                    data_through_a_third_rank, operations_wait_for_the_targets_fence,
                    a_closing_fence_waits_for_everybody, flush_completes_and_the_epoch_goes_on,
                    flush_all_is_for_every_target, flush_is_for_one_target, flushes_need_a_passive_epoch,
                    free_needs_closed_epochs, assertions_change_no_result, every_kind_of_epoch_in_turn,
                    shared_locks_are_held_together, lock_all_and_exclusive_exclude,
                    empty_lock_epochs_cost_nothing, lock_all_without_check, locks_are_asked_for_late,
                    fences_are_issued_then_granted, wrong_info_values_are_refused,
                    lock_returns_before_it_is_held;
                semantics: gets_complete_with_the_fence, buffers_are_free_after_completion,
                    unlock_completes_at_the_target, readers_do_not_disturb_each_other,
                    concurrent_accumulates_all_count, neighbouring_bytes_are_disjoint,
                    fetched_values_are_unique, own_and_foreign_sums, the_last_replace_stays,
                    sums_without_order, flush_orders_puts_and_gets, displacements_are_the_targets,
                    odd_places_and_lengths, a_swap_that_fails_changes_nothing, crossing_locks_are_served,
                    stores_under_ones_own_lock;
                types: sixteen_byte_integers, sixteen_bit_floats, truth_values, complex_numbers, values_with_index,
                    equal_values_take_the_smaller_index, undefined_reductions_are_refused,
                    compare_and_swap_of_every_type, compare_and_swap_wants_integers, atomic_reads_of_every_type,
                    long_vectors_of_wide_elements, wide_sums_of_all_ranks, sixteen_bit_floats_round_each_time,
                    torn_elements_are_refused;
                layouts: vector_to_contiguous, contiguous_to_vector, vector_to_another_vector, gets_of_vectors,
                    indexed_blocks, structures, a_transpose, nested_layouts, resized_layouts_interleave,
                    accumulates_with_layouts, fetching_with_three_layouts, accumulates_of_wide_elements,
                    reads_with_layouts, negative_displacements, outside_of_the_window, outside_of_the_window_late,
                    small_blocks_are_packed, large_blocks_are_native, blocks_travel_together,
                    the_threshold_never_changes_results,
                    small_blocks_cost_little, more_than_a_packet, layouts_of_nothing,
                    blocks_at_the_origin_may_overlap, lengths_must_agree, types_must_agree, swaps_take_no_layout,
                    layouts_on_oneself, layouts_ride_with_the_lock, layouts_wait_for_the_lock, layouts_in_a_fence,
                    layouts_in_lock_all, layouts_may_go_before_the_operation, small_payloads_are_copied,
                    requests_with_layouts, layouts_with_few_elements, layouts_under_all_switches, order_with_layouts,
                    layouts_in_regions, holes_between_regions;
            );
        }
    };
    (@tests $($group:ident: $($body:ident),+;)+) => {
        $($(
            #[test]
            fn $body() {
                let make = &(make as fn($crate::Spec) -> _);
                $crate::run(stringify!($body), DIFFER, &|| $crate::behaviour::$group::$body(make));
            }
        )+)+
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_differs_as_it_is_known_to() {
        assert!(differs_as_known("locked_or_exposed", "an epoch error was due, not Ok(())"));
        assert!(!differs_as_known("locked_or_exposed", "assertion `left == right` failed"));
        assert!(differs_as_known("large_puts", "assertion `left == right` failed: (2, 0) and (4, 2)"));
        assert!(!differs_as_known("large_puts", "hangs: rank 0 gets no resources for a put"));
        run("large_puts", &["large_puts"], &|| panic!("two packets"));
    }

    #[test]
    #[should_panic(expected = "not as it is known to: hangs")]
    fn a_hang_is_no_difference() {
        run("large_puts", &["large_puts"], &|| panic!("hangs: (rank, call)"));
    }

    #[test]
    #[should_panic(expected = "take it off the list")]
    fn what_holds_is_no_difference() {
        run("large_puts", &["large_puts"], &|| ());
    }
}
