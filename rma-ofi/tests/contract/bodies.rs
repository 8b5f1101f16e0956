//! The bodies of the provider contract. Each provider runs all of them: what is added here is added everywhere.

/// Hands every body to the macro `run`: how many endpoints its world has, its module and its name; or `processes`, of
/// one that starts some.
macro_rules! every_body {
    ($run:ident) => {
        $run!(2 one_process line_1_no_call_blocks_or_allocates(allocations));
        $run!(2 one_process line_2_again_has_no_side_effect);
        $run!(2 one_process line_3_every_tag_comes_back_once);
        $run!(processes line_3_a_killed_peer_gives_errors_and_no_hang);
        $run!(processes line_3_an_idle_peer_that_died_is_noticed);
        $run!(processes line_3_a_peer_that_died_is_noticed_by_replies);
        $run!(processes a_sleeping_peer_is_not_taken_for_dead);
        $run!(2 one_process a_source_may_be_a_constant);
        $run!(2 one_process a_large_source_may_be_a_constant);
        $run!(2 one_process line_4_sources_are_free_on_return);
        $run!(2 one_process line_5_packets_arrive_in_order_under_pressure);
        $run!(3 one_process line_6_completed_puts_are_visible);
        $run!(processes line_6_a_third_process_reads_completed_puts);
        $run!(2 one_process line_7_claimed_orders_hold);
        $run!(2 one_process line_8_poll_serves_the_target_role);
        $run!(2 one_process line_9_replies_find_room);
        $run!(2 one_process line_9_replies_pass_requests_that_are_kept(from_one_peer));
        $run!(2 vectors line_10_vectors_move_their_pieces);
        $run!(2 at_once line_12_what_is_complete_when_it_is_accepted_is_over);
        $run!(2 data line_13_data_come_behind_their_bytes);
        $run!(2 at_once line_17_memory_for_neighbours_has_one_name);
        $run!(2 at_once news_last_until_the_next_poll);
        $run!(2 one_process flush_covers_what_was_posted_before);
        $run!(1 one_process misuse_is_an_error);
        $run!(2 one_process a_wrong_key_fails_the_operation);
        $run!(1 one_process an_endpoint_reaches_itself);
        $run!(2 one_process a_thread_can_sleep_on_the_descriptor);
    };
}

pub(crate) use every_body;
