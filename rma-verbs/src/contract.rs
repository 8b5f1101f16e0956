//! The bodies of the provider contract on the device of `sys::emulated`.

use crate::world::World;
use crate::{
    at_once, atomics, connections, data, lists, one_process, vectors, Options, RemoteCompletion,
    VerbsEndpoint,
};

fn world(nodes: usize, change: fn(&mut Options)) -> World<VerbsEndpoint> {
    let name = crate::sys::emulated::NAME.to_str().unwrap();
    let mut options = Options { device: Some(name.to_owned()), native_atomics: true, ..Options::default() };
    change(&mut options);
    World::new((0..nodes).map(|_| VerbsEndpoint::open(&options).unwrap()).collect())
}

macro_rules! contract {
    ($name:ident: $change:expr; $($module:ident $nodes:literal $body:ident $(($argument:expr))?;)*) => {
        mod $name {
            use super::*;
            $(
                #[test]
                fn $body() {
                    $module::$body(world($nodes, $change) $(, $argument)?);
                }
            )*
        }
    };
}

macro_rules! lines {
    ($($name:ident: $change:expr;)*) => {$(
        contract! { $name: $change;
            one_process 2 line_2_again_has_no_side_effect;
            one_process 2 line_3_every_tag_comes_back_once;
            one_process 2 line_4_sources_are_free_on_return;
            one_process 2 line_5_packets_arrive_in_order_under_pressure;
            one_process 3 line_6_completed_puts_are_visible;
            one_process 2 line_7_claimed_orders_hold;
            one_process 2 line_8_poll_serves_the_target_role;
            one_process 2 line_9_replies_find_room;
            one_process 2 line_9_replies_pass_requests_that_are_kept(|limits| limits.receive_buffers);
            one_process 2 flush_covers_what_was_posted_before;
            one_process 1 misuse_is_an_error;
            one_process 2 a_wrong_key_fails_the_operation;
            one_process 1 an_endpoint_reaches_itself;
            vectors 2 line_10_vectors_move_their_pieces;
            at_once 2 line_12_what_is_complete_when_it_is_accepted_is_over;
            at_once 2 line_17_memory_for_neighbours_has_one_name;
            at_once 2 news_last_until_the_next_poll;
            data 2 line_13_data_come_behind_their_bytes;
            atomics 3 atomics_of_the_device_are_atomic;
            atomics 2 atomics_that_would_break_the_connection_are_refused;
            lists 3 rows_of_small_puts_come_back_one_by_one;
            connections 6 traffic_survives_closing(VerbsEndpoint::connections);
        }
    )*};
}

lines! {
    acknowledged: |_| ();
    reading_back: |options| options.remote_completion = RemoteCompletion::ReadBack;
}

// One connection at a time: each change of peer closes one and makes another.
contract! { one_connection: |options| options.connections_max = 1;
    one_process 2 line_3_every_tag_comes_back_once;
    one_process 2 line_5_packets_arrive_in_order_under_pressure;
    one_process 2 line_7_claimed_orders_hold;
    one_process 2 line_9_replies_pass_requests_that_are_kept(|limits| limits.receive_buffers);
    atomics 3 atomics_of_the_device_are_atomic;
    lists 3 rows_of_small_puts_come_back_one_by_one;
    connections 6 traffic_survives_closing(VerbsEndpoint::connections);
}

contract! { wide: small;
    connections 200 many_peers_few_connections(VerbsEndpoint::connections);
    connections 100 peers_touched_together_leave_few_connections(VerbsEndpoint::connections);
    connections 100 peers_that_come_together_leave_few_connections(VerbsEndpoint::connections);
}

contract! { broken: |_| ();
    connections 4 lost_peers_leave_their_places(VerbsEndpoint::connections);
    lists 2 a_row_that_breaks_says_which_puts_were_made;
}

/// Endpoints of which there can be many.
fn small(options: &mut Options) {
    (options.packet_bytes, options.receive_buffers, options.send_buffers) = (512, 8, 4);
    (options.outstanding, options.connections_max) = (16, connections::FEW);
}
