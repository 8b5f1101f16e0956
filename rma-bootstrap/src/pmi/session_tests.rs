use super::*;
use crate::pmi::wire::Reader;

/// Requests and the replies that real servers gave to them: `> request`, `< reply`. Checks each request, and
/// hands each reply over.
fn replay(session: &mut Session, transcript: &str) {
    for line in transcript.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let syntax = session.syntax();
        if let Some(expected) = line.strip_prefix("> ") {
            let mut bytes = Vec::new();
            session.poll_request().expect(expected).encode(syntax, &mut bytes).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let text = if syntax == Syntax::Counted { &text[6..] } else { text.trim_end() };
            assert_eq!(text, expected);
            continue;
        }
        let reply = line.strip_prefix("< ").expect("a reply");
        let mut reader = Reader::default();
        reader.set_syntax(syntax);
        match syntax {
            Syntax::Lines => reader.push(format!("{reply}\n").as_bytes()),
            Syntax::Counted => reader.push(format!("{:6}{reply}", reply.len()).as_bytes()),
        };
        session.on_reply(&reader.poll().unwrap().unwrap()).unwrap();
    }
}

/// Hydra 4.0, two ranks on one host.
const HYDRA_ONE: &str = "
    > cmd=init pmi_version=1 pmi_subversion=1
    < cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
    > cmd=get_maxes
    < cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
    > cmd=get_my_kvsname
    < cmd=my_kvsname kvsname=kvs_9806_0_889701973_vm
    > cmd=get kvsname=kvs_9806_0_889701973_vm key=PMI_process_mapping
    < cmd=get_result rc=0 msg=success value=(vector,(0,1,1))";

/// Slurm 22.05, two ranks on two hosts.
const SLURM_TWO: &str = "
    > cmd=init pmi_version=2 pmi_subversion=0
    < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0
    > cmd=fullinit;pmijobid=2.0;pmirank=1;threaded=FALSE;
    < cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=-1;debugged=FALSE;pmiverbose=FALSE;
    > cmd=job-getid;
    < cmd=job-getid-response;rc=0;jobid=2.0;
    > cmd=info-getjobattr;key=PMI_process_mapping;
    < cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,2,1));";

fn joined_two() -> Session {
    let mut session = Session::new(None, Some((1, 2)), 0).with_job(Some("2.0"));
    replay(&mut session, SLURM_TWO);
    session
}

#[test]
fn hydra_by_pmi_1() {
    let mut session = Session::new(Some(Version::One), Some((1, 2)), 0);
    replay(&mut session, HYDRA_ONE);
    assert!(session.is_idle() && session.job() == "kvs_9806_0_889701973_vm");
    assert_eq!((session.place(), session.local_place()), (Some((1, 2)), Some((1, 2))));
    session.put("address", b"\x01\xff").unwrap();
    session.commit();
    replay(
        &mut session,
        "> cmd=put kvsname=kvs_9806_0_889701973_vm key=rma-1-address-0 value=2.01ff
         < cmd=put_result rc=0 msg=success
         > cmd=barrier_in",
    );
    assert!(session.is_committing() && !session.is_committed() && session.poll_request().is_none());
    replay(&mut session, "< cmd=barrier_out");
    assert!(session.is_committed());
    session.get(7, 0, "address");
    session.get(8, 0, "other");
    replay(
        &mut session,
        "> cmd=get kvsname=kvs_9806_0_889701973_vm key=rma-0-address-0
         < cmd=get_result rc=0 msg=success value=1.00
         > cmd=get kvsname=kvs_9806_0_889701973_vm key=rma-0-other-0
         < cmd=get_result rc=-1 msg=key_x_not_found value=unknown",
    );
    assert!(matches!(session.poll_answer(), Some((8, Err(_)))));
    assert_eq!(session.poll_answer(), Some((7, Ok(vec![0]))));
    session.finalize();
    session.finalize();
    replay(
        &mut session,
        "> cmd=barrier_in
         < cmd=barrier_out
         > cmd=finalize
         < cmd=finalize_ack",
    );
    assert!(session.is_finalized() && session.is_idle());
    assert_eq!(session.abort(3, "why"), Message::new("abort").with("exitcode", 3));
}

#[test]
fn slurm_by_pmi_2() {
    let mut session = joined_two();
    assert_eq!((session.place(), session.local_place(), session.job()), (Some((1, 2)), Some((0, 1)), "2.0"));
    session.put("a", b"").unwrap();
    session.finalize();
    // Whoever never looked anything up still passes the first barrier, in which the others are.
    replay(
        &mut session,
        "> cmd=kvs-put;key=rma-1-a-0;value=0.;
         < cmd=kvs-put-response;rc=0;
         > cmd=kvs-fence;
         < cmd=kvs-fence-response;rc=0;
         > cmd=kvs-fence;
         < cmd=kvs-fence-response;rc=0;
         > cmd=kvs-get;jobid=2.0;srcid=-1;key=rma-all-done;
         < cmd=kvs-get-response;rc=0;found=FALSE;
         > cmd=finalize;
         < cmd=finalize-response;rc=0;",
    );
    assert!(session.is_finalized());
    assert_eq!(session.abort(1, "a b").get("msg"), Some("a_b"));
}

/// What is needed before the addresses are published goes through a barrier of its own.
#[test]
fn a_round_before_the_addresses() {
    let mut session = joined_two();
    session.put("reach", b"\x05").unwrap();
    session.commit();
    session.begin_round();
    assert!(session.put("address", b"").is_err(), "the barrier is not over");
    session.get(1, 0, "reach");
    replay(
        &mut session,
        "> cmd=kvs-put;key=rma-1-reach-0;value=1.05;
         < cmd=kvs-put-response;rc=0;
         > cmd=kvs-fence;
         < cmd=kvs-fence-response;rc=0;
         > cmd=kvs-get;jobid=2.0;srcid=-1;key=rma-0-reach-0;
         < cmd=kvs-get-response;rc=0;found=TRUE;value=1.06;",
    );
    assert_eq!(session.poll_answer(), Some((1, Ok(vec![6]))));
    session.begin_round();
    assert!(!session.is_committing() && !session.is_committed());
    session.put("address", b"").unwrap();
    session.commit();
    session.commit();
    replay(
        &mut session,
        "> cmd=kvs-put;key=rma-1-address-0;value=0.;
         < cmd=kvs-put-response;rc=0;
         > cmd=kvs-fence;
         < cmd=kvs-fence-response;rc=0;",
    );
    assert!(session.is_committed() && session.poll_request().is_none());
}

#[test]
fn long_values_are_cut_and_put_together() {
    let mut session = joined_two();
    let value: Vec<u8> = (0..1024).map(|index| index as u8).collect();
    session.put("k", &value).unwrap();
    session.commit();
    let mut put = Vec::new();
    while !session.is_committed() {
        let request = session.poll_request().unwrap();
        if request.name() == "kvs-put" {
            assert!(request.get("value").unwrap().len() <= SEGMENT_BYTES_MAX);
            put.push((request.get("key").unwrap().to_owned(), request.get("value").unwrap().to_owned()));
        }
        session.on_reply(&Message::new(&format!("{}-response", request.name())).with("rc", 0)).unwrap();
    }
    assert_eq!(put.len(), 4);
    session.get(1, 1, "k");
    while let Some(request) = session.poll_request() {
        let key = request.get("key").unwrap();
        let value = &put.iter().find(|(name, _)| name == key).unwrap().1;
        session
            .on_reply(&Message::new("kvs-get-response").with("found", "TRUE").with("value", value))
            .unwrap();
    }
    assert_eq!(session.poll_answer(), Some((1, Ok(value))));
}

#[test]
fn a_server_of_version_1_is_spoken_to_in_version_1() {
    for refusal in ["rc=-1", "pmi_version=1 pmi_subversion=1 rc=0"] {
        let mut session = Session::new(None, Some((1, 2)), 0);
        let refused = format!("> cmd=init pmi_version=2 pmi_subversion=0\n< cmd=response_to_init {refusal}");
        replay(&mut session, &refused);
        replay(&mut session, HYDRA_ONE);
        assert_eq!(session.version(), Version::One);
    }
    let mut session = Session::new(Some(Version::Two), Some((1, 2)), 0);
    session.poll_request();
    let reply = Message::new("response_to_init").with("rc", -1);
    assert!(session.on_reply(&reply).unwrap_err().contains("PMI-2"));
}

#[test]
fn a_server_behind_a_port_says_who_this_is() {
    let mut session = Session::new(Some(Version::One), None, 3);
    replay(
        &mut session,
        "> cmd=initack pmiid=3
         < cmd=initack
         < cmd=set size=2
         < cmd=set rank=1
         < cmd=set debug=0",
    );
    replay(&mut session, HYDRA_ONE);
    assert_eq!(session.place(), Some((1, 2)));
    let mut session = Session::new(None, None, 3);
    session.poll_request();
    assert!(session.on_reply(&Message::new("initack").with("rc", -1)).is_err());
}

#[test]
fn what_the_server_should_not_say() {
    let mut session = joined_two();
    assert!(session
        .on_reply(&Message::new("kvs-put-response"))
        .unwrap_err()
        .contains("without having been asked"));
    session.commit();
    session.poll_request();
    assert!(session.on_reply(&Message::new("barrier_out")).unwrap_err().contains("kvs-fence-response"));
    let mut session = joined_two();
    session.put("k", b"v").unwrap();
    session.poll_request();
    let refusal = Message::new("kvs-put-response").with("rc", 5).with("errmsg", "full");
    assert!(session.on_reply(&refusal).unwrap_err().contains("full"));
    let mut session = Session::new(None, None, 3);
    session.poll_request();
    let end = (0..100).find_map(|_| session.on_reply(&Message::new("set").with("x", 1)).err());
    assert!(end.is_some(), "a hello that never ends");
}

#[test]
fn what_others_published_is_no_value_of_ours() {
    let mut session = joined_two();
    session.commit();
    session.poll_request();
    session.on_reply(&Message::new("kvs-fence-response")).unwrap();
    session.get(1, 0, "k");
    session.poll_request();
    let reply = Message::new("kvs-get-response").with("found", "TRUE").with("value", "hello");
    session.on_reply(&reply).unwrap();
    assert!(
        matches!(session.poll_answer(), Some((1, Err(why))) if why.contains("not published by this library"))
    );
}

#[test]
fn what_cannot_be_put() {
    let mut session = joined_two();
    assert!(session.put("k", &[0; VALUE_BYTES_MAX + 1]).is_err());
    assert!(session.put(&"k".repeat(60), b"").unwrap_err().contains("too long"));
    for key in ["a b", "a;b", "a=b", "ü"] {
        assert!(session.put(key, b"").is_err(), "{key}");
    }
    assert!(session.poll_request().is_none());
    session.commit();
    assert!(session.put("k", b"v").unwrap_err().contains("before the address is published"));
}

/// The messages of a rank that joins, publishes, looks `peers` others up, and finalizes.
fn message_count(version: Version, rank: u32, size: u32, peers: u32) -> u32 {
    let mut session = Session::new(Some(version), Some((rank, size)), 0);
    let mut count = 0;
    let mut answer = |session: &mut Session| {
        while let Some(request) = session.poll_request() {
            count += 1;
            let name = match request.name() {
                "init" => "response_to_init".to_owned(),
                "get_maxes" => "maxes".to_owned(),
                "get_my_kvsname" => "my_kvsname".to_owned(),
                "barrier_in" => "barrier_out".to_owned(),
                "finalize" if version == Version::One => "finalize_ack".to_owned(),
                name if version == Version::One => format!("{name}_result"),
                name => format!("{name}-response"),
            };
            let spoken = if version == Version::One { 1 } else { 2 };
            let reply = Message::new(&name).with("pmi_version", spoken).with("rank", rank).with("size", size);
            let reply = reply.with("jobid", "j").with("kvsname", "j").with("value", "1.00");
            session.on_reply(&reply).unwrap();
        }
    };
    answer(&mut session);
    session.put("address", &[0; 256]).unwrap();
    session.commit();
    answer(&mut session);
    (0..peers).for_each(|peer| session.get(peer, peer, "address"));
    answer(&mut session);
    session.finalize();
    answer(&mut session);
    assert!(session.is_finalized());
    count
}

/// What a rank costs does not depend on how many ranks there are: it asks once for each that it talks to.
#[test]
fn messages_are_counted() {
    // A look-up that tells whether the last fence was a barrier.
    for (version, finalize) in [(Version::One, 2), (Version::Two, 3)] {
        for (rank, size) in [(1, 2), (1_048_575, 1_048_576)] {
            for peers in [0, 2, 50] {
                let expected = 4 /* join */ + 2 /* publish */ + peers + finalize;
                assert_eq!(message_count(version, rank, size, peers), expected, "{version:?} {size}");
            }
        }
    }
}
