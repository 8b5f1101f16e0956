//! What is sent to an endpoint that is gone does not reach the one that got its place: a peer that was told the
//! place of one endpoint and the number of another finds nothing there.

use rma_core::bootstrap::AddressBytes;
use rma_core::ids::RemoteKey;
use rma_core::provider::{CompletionScope, Endpoint, MemoryRegion, SendClass};
use rma_ofi::OfiEndpoint;

use crate::world::{Window, World};

/// The node that believes in the endpoint that is gone, the one that got its place, and one that knows better.
const SURVIVOR: usize = 0;
const SUCCESSOR: usize = 1;
const FRIEND: usize = 2;

/// Where the number is in an address: behind version, flags, a length, and two words about reading back.
const NONCE_AT: usize = 19;

/// The address of the endpoint that used to be where this one is.
fn predecessor(address: &AddressBytes) -> AddressBytes {
    let mut bytes = address.as_slice().to_vec();
    for byte in &mut bytes[NONCE_AT..NONCE_AT + 8] {
        *byte = !*byte;
    }
    AddressBytes::new(&bytes).unwrap()
}

/// Has the survivor know the successor's predecessor only.
fn mistake(world: &mut World<OfiEndpoint>) {
    let successor = world.nodes[SUCCESSOR].ep.address();
    let survivor = &mut world.nodes[SURVIVOR];
    // One peer is never two endpoints: it is another peer, or refused where the provider knows the place already.
    match survivor.ep.connect(&predecessor(&successor)) {
        Ok(peer) => {
            assert!(!survivor.peers.contains(&peer), "two endpoints are one peer");
            survivor.ep.disconnect(peer);
        }
        Err(refused) => assert!(refused.message.contains("another endpoint's"), "{}", refused.message),
    }
    survivor.ep.disconnect(survivor.peers[SUCCESSOR]);
    survivor.peers[SUCCESSOR] = survivor.ep.connect(&predecessor(&successor)).unwrap();
}

/// Packets for the endpoint that is gone are dropped, more of them than there are buffers, and do not come between
/// those of others.
pub(crate) fn packets_for_another_endpoint_are_dropped(mut world: World<OfiEndpoint>) {
    mistake(&mut world);
    let rounds = 2 * world.nodes[SUCCESSOR].ep.limits().receive_buffers as u64 + 1;
    let largest = vec![3; world.nodes[SURVIVOR].ep.limits().send_bytes_max];
    let strays = [&largest[..], b"for somebody else", b""];
    let mut sent = 0;
    for round in 0..rounds {
        for class in [SendClass::Request, SendClass::Reply] {
            world.send_as(SURVIVOR, SUCCESSOR, strays[round as usize % strays.len()], b"", class);
            sent += 1;
        }
        world.send(FRIEND, SUCCESSOR, &round.to_le_bytes(), b"");
    }
    world.until("all packets", |world| {
        let node = &world.nodes[SUCCESSOR];
        node.packets.len() as u64 + node.ep.stray_packets() >= rounds + sent
    });
    let node = &world.nodes[SUCCESSOR];
    assert_eq!(node.ep.stray_packets(), sent);
    assert!(
        (0..rounds).map(|round| round.to_le_bytes().to_vec()).eq(node.packets.iter().cloned()),
        "out of order"
    );
    assert!(world.nodes.iter().all(|node| node.downs.is_empty()), "a stray packet is nobody's end");

    // Who learns the successor's own address reaches it.
    let address = world.nodes[SUCCESSOR].ep.address();
    let survivor = &mut world.nodes[SURVIVOR];
    survivor.ep.disconnect(survivor.peers[SUCCESSOR]);
    survivor.peers[SUCCESSOR] = survivor.ep.connect(&address).unwrap();
    world.nodes[SUCCESSOR].packets.clear();
    world.send(SURVIVOR, SUCCESSOR, b"for you", b"");
    assert_eq!(world.receive(SUCCESSOR), b"for you");
}

/// Keys are what the engine wished, the same everywhere, and yet do not open the memory of another endpoint.
pub(crate) fn keys_of_another_endpoint_open_nothing(mut world: World<OfiEndpoint>) {
    const WISH: u64 = 0x1001;
    let mut window = Window::<OfiEndpoint>::new(&mut world.nodes[SUCCESSOR].ep, 4096, WISH);
    let mode = &world.nodes[SUCCESSOR].ep.description().registration_mode;
    assert!(!mode.contains("FI_MR_PROV_KEY"), "the provider chooses keys, so this shows nothing: {mode}");
    assert_eq!(window.region.remote_key(), RemoteKey(WISH));
    window.set_word(8, 5);
    mistake(&mut world);

    let src = 7u64.to_ne_bytes();
    world.put(FRIEND, SUCCESSOR, &src, window.at(16), 1);
    world.flush(FRIEND, SUCCESSOR, 2);
    assert_eq!(window.word(16), 7);

    world.start_put(SURVIVOR, SUCCESSOR, &src, window.at(0), 1);
    let said = |world: &World<OfiEndpoint>| world.nodes[SURVIVOR].outcomes.clone();
    world.until("the refused put", |world| said(world).len() == 1);
    // A local completion says nothing about the target.
    let is_local = world.nodes[SURVIVOR].ep.limits().put_completes == CompletionScope::Local;
    assert!(is_local || said(&world)[0].1.is_err(), "{:?}", said(&world));
    for _ in 0..1000 {
        world.poll();
    }
    assert_eq!((window.word(0), window.word(8)), (0, 5));
}
