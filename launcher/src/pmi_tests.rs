use super::*;

/// Feeds `messages` of `rank` to the server; what comes out.
fn say(server: &mut PmiServer, kvs: &mut Kvs, rank: u32, message: Message) -> Vec<Outcome> {
    server.on_message(rank, &message, kvs).unwrap();
    std::iter::from_fn(|| server.poll_outcome()).collect()
}

fn reply(outcomes: &[Outcome]) -> &Message {
    match outcomes {
        [Outcome::Reply(_, message)] => message,
        _ => panic!("one reply and not {outcomes:?}"),
    }
}

fn init(version: u32) -> Message {
    Message::new("init").with("pmi_version", version).with("pmi_subversion", 0)
}

fn joined(size: u32, version: u32) -> (PmiServer, Kvs) {
    let (mut server, mut kvs) = (PmiServer::new("job", size, &[]), Kvs::new(size));
    for rank in 0..size {
        let outcomes = say(&mut server, &mut kvs, rank, init(version));
        assert_eq!(outcomes.last(), Some(&Outcome::Joined));
        assert_eq!(outcomes.contains(&Outcome::Speak(rank, Syntax::Counted)), version == 2);
    }
    (server, kvs)
}

#[test]
fn pmi_1_from_init_to_finalize() {
    let (mut server, mut kvs) = joined(2, 1);
    let mut ask = |message| {
        let outcomes = say(&mut server, &mut kvs, 0, message);
        reply(&outcomes).clone()
    };
    assert_eq!(ask(Message::new("get_maxes")).number("vallen_max"), Some(1024));
    assert_eq!(ask(Message::new("get_appnum")).number("appnum"), Some(0));
    assert_eq!(ask(Message::new("get_universe_size")).number("size"), Some(2));
    assert_eq!(ask(Message::new("get_my_kvsname")).get("kvsname"), Some("job"));
    let mapping = Message::new("get").with("kvsname", "job").with("key", MAPPING_KEY);
    assert_eq!(ask(mapping).get("value"), Some("(vector,(0,1,2))"));
    let put = Message::new("put").with("kvsname", "job").with("key", "k").with("value", "v");
    assert_eq!(ask(put.clone()).number("rc"), Some(0));
    assert_eq!(ask(put).number("rc"), Some(-1));
    assert_eq!(ask(Message::new("put").with("kvsname", "other").with("key", "q")).number("rc"), Some(-1));
    assert_eq!(ask(Message::new("get").with("kvsname", "job").with("key", "k")).get("value"), Some("v"));
    assert_eq!(ask(Message::new("get").with("kvsname", "job").with("key", "x")).number("rc"), Some(-1));
    assert_eq!(say(&mut server, &mut kvs, 0, Message::new("barrier_in")), []);
    let out = say(&mut server, &mut kvs, 1, Message::new("barrier_in"));
    let barrier_out = Message::new("barrier_out").with("rc", 0);
    assert_eq!(out, [Outcome::Reply(0, barrier_out.clone()), Outcome::Reply(1, barrier_out)]);
    let out = say(&mut server, &mut kvs, 1, Message::new("finalize"));
    assert_eq!(out, [Outcome::Reply(1, Message::new("finalize_ack").with("rc", 0)), Outcome::Finalized]);
    assert!(!server.is_joined(1) && server.is_joined(0));
}

#[test]
fn pmi_2_from_fullinit_to_finalize() {
    let (mut server, mut kvs) = joined(2, 2);
    let mut ask = |message| {
        let outcomes = say(&mut server, &mut kvs, 1, message);
        reply(&outcomes).clone()
    };
    let reply = ask(Message::new("fullinit").with("pmirank", 1).with("thrid", 9));
    assert_eq!(
        (reply.name(), reply.number("rank"), reply.number("size")),
        ("fullinit-response", Some(1), Some(2))
    );
    assert_eq!(reply.get("thrid"), Some("9"));
    assert_eq!(ask(Message::new("job-getid")).get("jobid"), Some("job"));
    let attribute = |key: &str| Message::new("info-getjobattr").with("key", key);
    assert_eq!(ask(attribute(MAPPING_KEY)).get("value"), Some("(vector,(0,1,2))"));
    assert_eq!(ask(attribute("universeSize")).get("value"), Some("2"));
    assert_eq!(ask(attribute("other")).get("found"), Some("FALSE"));
    assert_eq!(ask(Message::new("kvs-put").with("key", "k").with("value", "a;b")).number("rc"), Some(0));
    assert_eq!(ask(Message::new("kvs-get").with("key", "k")).get("value"), Some("a;b"));
    assert_eq!(ask(Message::new("kvs-get").with("key", "x")).get("found"), Some("FALSE"));
    assert_eq!(ask(Message::new("kvs-put").with("key", "").with("value", "")).number("rc"), Some(-1));
    let long = "v".repeat(VALUE_BYTES_MAX);
    assert_eq!(ask(Message::new("kvs-put").with("key", "l").with("value", long)).number("rc"), Some(-1));
    assert_eq!(say(&mut server, &mut kvs, 0, Message::new("kvs-fence").with("thrid", 3)), []);
    let out = say(&mut server, &mut kvs, 1, Message::new("kvs-fence"));
    assert_eq!(out.len(), 2);
    assert!(matches!(&out[0], Outcome::Reply(0, message) if message.get("thrid") == Some("3")));
    let out = say(&mut server, &mut kvs, 1, Message::new("finalize"));
    assert_eq!(out[1], Outcome::Finalized);
}

#[test]
fn attributes_of_the_host_are_waited_for() {
    let (mut server, mut kvs) = joined(3, 2);
    let get = |wait| Message::new("info-getnodeattr").with("key", "shm").with("wait", wait);
    let out = say(&mut server, &mut kvs, 0, get("FALSE"));
    assert_eq!(reply(&out).get("found"), Some("FALSE"));
    assert_eq!(say(&mut server, &mut kvs, 0, get("TRUE").with("thrid", 1)), []);
    assert!(server.on_message(0, &Message::new("job-getid"), &mut kvs).unwrap_err().contains("not answered"));
    let put = Message::new("info-putnodeattr").with("key", "shm").with("value", "/x");
    let out = say(&mut server, &mut kvs, 1, put);
    assert!(matches!(&out[0], Outcome::Reply(0, message) if message.get("value") == Some("/x")));
    assert!(matches!(&out[1], Outcome::Reply(1, message) if message.number("rc") == Some(0)));
    // The job's values are apart.
    let out = say(&mut server, &mut kvs, 2, Message::new("kvs-get").with("key", "shm"));
    assert_eq!(reply(&out).get("found"), Some("FALSE"));
}

#[test]
fn a_barrier_that_cannot_end_is_an_error() {
    let (mut server, mut kvs) = joined(3, 1);
    assert_eq!(say(&mut server, &mut kvs, 0, Message::new("barrier_in")), []);
    assert_eq!(say(&mut server, &mut kvs, 1, Message::new("barrier_in")), []);
    // One that is in the barrier, and then one that is not.
    server.on_gone(1);
    let out = server.poll_outcome();
    assert!(matches!(&out, Some(Outcome::Reply(0, message)) if message.number("rc") == Some(-1)), "{out:?}");
    server.on_gone(1);
    assert_eq!(server.poll_outcome(), None);
    let out = say(&mut server, &mut kvs, 2, Message::new("barrier_in"));
    assert_eq!(reply(&out).number("rc"), Some(-1));
}

#[test]
fn what_is_not_served_is_refused_politely() {
    let (mut server, mut kvs) = joined(1, 1);
    for (command, answer) in [
        ("spawn", "spawn_result"),
        ("publish_name", "publish_result"),
        ("lookup_name", "lookup_result"),
        ("keyval_cselect", "keyval_cselect_result"),
    ] {
        let out = say(&mut server, &mut kvs, 0, Message::new(command));
        assert_eq!((reply(&out).name(), reply(&out).number("rc")), (answer, Some(-1)));
    }
    let (mut server, mut kvs) = joined(1, 2);
    for command in ["spawn", "name-publish", "job-connect", "x"] {
        let out = say(&mut server, &mut kvs, 0, Message::new(command).with("thrid", 2));
        assert_eq!(reply(&out).name(), format!("{command}-response"));
        assert_eq!((reply(&out).number("rc"), reply(&out).get("thrid")), (Some(-1), Some("2")));
    }
}

#[test]
fn what_is_out_of_order_closes_the_connection() {
    let (mut server, mut kvs) = (PmiServer::new("job", 2, &[]), Kvs::new(2));
    for name in ["barrier_in", "put", "abort", "finalize"] {
        let error = server.on_message(0, &Message::new(name), &mut kvs).unwrap_err();
        assert!(error.contains("out of order"), "{error}");
    }
    assert_eq!(reply(&say(&mut server, &mut kvs, 0, init(3))).number("rc"), Some(-1));
    assert_eq!(say(&mut server, &mut kvs, 0, init(1)).len(), 2);
    say(&mut server, &mut kvs, 0, Message::new("finalize"));
    assert!(server.on_message(0, &init(1), &mut kvs).is_err());
    let abort = Message::new("abort").with("exitcode", 7);
    say(&mut server, &mut kvs, 1, init(1));
    assert_eq!(say(&mut server, &mut kvs, 1, abort), [Outcome::Abort(7, "by PMI".into())]);
}

/// Messages of any kind in any order neither panic nor leave a rank in two places at once.
#[test]
fn any_messages_in_any_order_are_harmless() {
    let names = [
        "init",
        "fullinit",
        "put",
        "get",
        "kvs-put",
        "kvs-get",
        "barrier_in",
        "kvs-fence",
        "finalize",
        "abort",
        "info-putnodeattr",
        "info-getnodeattr",
        "spawn",
        "get_maxes",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (seed >> 33) as usize % below
    };
    for _ in 0..500 {
        let (mut server, mut kvs) = (PmiServer::new("job", 3, &[0, 0, 1]), Kvs::new(3));
        for _ in 0..60 {
            let rank = draw(3) as u32;
            let message = Message::new(names[draw(names.len())]).with("pmi_version", draw(4));
            let message =
                message.with("key", draw(3)).with("wait", ["TRUE", "FALSE"][draw(2)]).with("value", "v");
            if server.on_message(rank, &message, &mut kvs).is_err() && draw(2) == 0 {
                server.on_gone(rank);
            }
            while server.poll_outcome().is_some() {}
            let in_barrier =
                server.ranks.iter().filter(|rank| matches!(rank.wait, Some((Wait::Barrier, _)))).count();
            let gone = server.ranks.iter().filter(|rank| rank.stage == Stage::Gone).count();
            assert_eq!((in_barrier, gone), (server.in_barrier_count as usize, server.gone_count as usize));
            assert!(in_barrier < 3 && (gone == 0 || in_barrier == 0));
        }
    }
}

#[test]
fn each_rank_learns_which_program_it_runs() {
    let (mut server, mut kvs) = (PmiServer::new("job", 3, &[]), Kvs::new(3));
    server.set_programs(vec![0, 1, 1]);
    let mut ask = |rank: u32, message: Message| {
        server.on_message(rank, &message, &mut kvs).unwrap();
        let replies = std::iter::from_fn(|| server.poll_outcome());
        let replies = replies.filter_map(|outcome| match outcome {
            Outcome::Reply(to, reply) if to == rank => Some(reply),
            _ => None,
        });
        replies.last().unwrap()
    };
    let init = |version: u32| Message::new("init").with("pmi_version", version).with("pmi_subversion", 0);
    ask(0, init(1));
    assert_eq!(ask(0, Message::new("get_appnum")).number("appnum"), Some(0));
    ask(1, init(1));
    assert_eq!(ask(1, Message::new("get_appnum")).number("appnum"), Some(1));
    ask(2, init(2));
    assert_eq!(ask(2, Message::new("fullinit").with("pmirank", 2)).number("appnum"), Some(1));
}
