use std::os::unix::net::UnixStream;

use super::super::wire::{Message, Syntax};
use super::*;
use crate::control::ControlError;

/// Far above what any of this takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// What is waited for that does not come.
const SHORT: Duration = Duration::from_millis(200);

/// The server's end of a client: answers what it is asked for, except barriers.
struct Server {
    channel: Channel,
    values: Vec<(String, String)>,
    barriers: u32,
    /// Whether its fences are none, as Hydra's: then who asks for what is not there is not answered either, until
    /// all ranks have come.
    is_lax: bool,
}

impl Server {
    /// Answers everything that has been asked by now.
    fn answer(&mut self) {
        while let Ok(Some(request)) = self.channel.receive() {
            let name = match request.name() {
                "init" => "response_to_init".to_owned(),
                name => format!("{name}-response"),
            };
            let reply = Message::new(&name);
            let reply = match request.name() {
                "init" => reply.with("pmi_version", 2).with("pmi_subversion", 0),
                "fullinit" => reply.with("rank", 1).with("size", 4),
                "job-getid" => reply.with("jobid", "a/b"),
                "kvs-put" => {
                    let field = |name| request.get(name).unwrap().to_owned();
                    self.values.push((field("key"), field("value")));
                    reply
                }
                "kvs-get" => match self.values.iter().find(|(key, _)| request.get("key") == Some(key)) {
                    Some((_, value)) => reply.with("found", "TRUE").with("value", value),
                    None if self.is_lax => continue,
                    None => reply.with("found", "FALSE"),
                },
                "kvs-fence" if self.is_lax => reply,
                "kvs-fence" => {
                    self.barriers += 1;
                    continue;
                }
                _ => reply,
            };
            self.channel.send(&reply.with("rc", 0)).unwrap();
            if name == "response_to_init" {
                self.channel.set_syntax(Syntax::Counted);
            }
        }
    }

    fn end_barrier(&mut self) {
        self.channel.send(&Message::new("kvs-fence-response").with("rc", 0)).unwrap();
    }
}

/// A client that has published, and its server, which has not ended that barrier.
fn joined() -> (PmiClient, Server) {
    joined_and(|client| client.publish(&AddressBytes::new(b"here").unwrap()).unwrap())
}

/// A client that does this until it waits in a barrier.
fn joined_and(act: impl FnOnce(&mut PmiClient)) -> (PmiClient, Server) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let channel = Channel::new(theirs.into()).unwrap();
    let mut server = Server { channel, values: Vec::new(), barriers: 0, is_lax: false };
    let thread = std::thread::spawn(move || {
        while server.channel.wait(false, LIMIT).unwrap() {
            server.answer();
            if server.barriers > 0 {
                break;
            }
        }
        server
    });
    let session = Session::new(None, Some((1, 4)), 0);
    let joined = PmiClient::join_over(ours.into(), session, Some((0, 2)), LIMIT, Instant::now());
    let mut client = joined.unwrap();
    act(&mut client);
    while client.session.is_committing() && !thread.is_finished() {
        client.exchange();
        client.wait_readable(Duration::from_millis(1)).unwrap();
    }
    (client, thread.join().unwrap())
}

#[test]
fn more_neighbours_than_ranks_are_another_jobs() {
    for (said, environment, place) in [
        (None, None, (0, 1)),
        (None, Some((1, 2)), (1, 2)),
        (None, Some((1, 4)), (1, 4)),
        (None, Some((1, 5)), (0, 1)),
        (Some((2, 3)), Some((1, 5)), (2, 3)),
    ] {
        assert_eq!(place_on_host(said, environment, 4), place, "{said:?} {environment:?}");
    }
}

#[test]
fn joins_publishes_without_waiting_and_looks_up() {
    let (mut client, mut server) = joined();
    assert_eq!((client.rank(), client.size(), client.version()), (Rank(1), 4, Version::Two));
    assert_eq!((client.local_rank(), client.local_size(), client.job_id()), (0, 2, "pmi-ab"));
    assert_eq!(client.local_ranks(), [], "this server has not said it, and the environment says how many");
    assert!(matches!(client.lookup(Rank(1)), Ok(Lookup::Pending)));
    assert_eq!(server.barriers, 1);
    server.end_barrier();
    assert!(client.wait_readable(LIMIT).unwrap());
    assert!(matches!(client.lookup(Rank(1)), Ok(Lookup::Pending)));
    server.answer();
    assert!(client.wait_readable(LIMIT).unwrap());
    let Ok(Lookup::Found(address)) = client.lookup(Rank(1)) else { panic!("answered") };
    assert_eq!(address.as_slice(), b"here");
    assert!(matches!(client.lookup(Rank(0)), Ok(Lookup::Pending)));
    server.answer();
    let error = client.lookup(Rank(0)).unwrap_err();
    assert!(error.message.contains("address of rank 0") && error.message.contains("rank 1:"), "{error}");
    assert!(client.lookup(Rank(4)).unwrap_err().message.contains("job of 4"));
    assert_eq!(client.message_count(), 2 * 4 + 3 + 1 + 2 * 2);
}

/// What is needed before the addresses has a barrier of its own, and others may connect also behind the next one.
#[test]
fn what_is_shared_is_seen_before_the_addresses() {
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = open.local_addr().unwrap();
    let (mut client, mut server) = joined_and(|client| {
        client.keep_open(vec![open]);
        client.share("reach", Some(b"\x05")).unwrap();
    });
    assert!(matches!(client.get(Rank(1), "reach"), Ok(Fetch::Pending)));
    server.end_barrier();
    for _fence_and_value in 0..2 {
        assert!(client.wait_readable(LIMIT).unwrap());
        assert_eq!(server.barriers, 1);
        if client.get(Rank(1), "reach").unwrap() == Fetch::Found(vec![5]) {
            break;
        }
        server.answer();
    }
    client.publish(&AddressBytes::new(b"here").unwrap()).unwrap();
    assert!(matches!(client.lookup(Rank(1)), Ok(Lookup::Pending)), "the first barrier was another one");
    for _put_and_fence in 0..2 {
        server.answer();
        client.receive();
    }
    assert_eq!(server.barriers, 2);
    server.end_barrier();
    assert!(client.wait_readable(LIMIT).unwrap());
    client.receive();
    assert!(TcpStream::connect(place).is_ok());
    drop(client);
    assert!(TcpStream::connect(place).is_err());
}

/// What was asked for is answered before a rank leaves that fails, and nothing else is asked for.
#[test]
fn the_last_answer_is_taken() {
    let (mut client, mut server) = joined();
    server.end_barrier();
    server.is_lax = true;
    assert!(client.wait_readable(LIMIT).unwrap());
    for rank in [2, 3] {
        assert!(matches!(client.get(Rank(rank), "late"), Ok(Fetch::Pending)));
    }
    server.answer();
    assert!(!client.session.is_idle());
    let late = std::thread::spawn(move || {
        let answer = Message::new("kvs-get-response").with("found", "TRUE").with("value", "00").with("rc", 0);
        server.channel.send(&answer).unwrap();
        server
    });
    client.take_last_answer();
    assert!(client.session.is_idle());
    assert!(!late.join().unwrap().channel.wait(false, Duration::ZERO).unwrap(), "more is asked for");
}

#[test]
fn ranks_that_never_publish_are_an_error_after_the_limit() {
    let (mut client, _server) = joined();
    client.limit = SHORT;
    let begun = Instant::now();
    let error = loop {
        match client.lookup(Rank(0)) {
            Ok(Lookup::Pending) => drop(client.wait_readable(Duration::from_millis(10))),
            Ok(Lookup::Found(_)) => panic!("nobody published"),
            Err(error) => break error,
        }
        assert!(begun.elapsed() < LIMIT);
    };
    assert!(error.message.contains("not all ranks have published within 0.2 s"), "{error}");
}

/// The client takes leave, step by step, as all ranks do.
fn take_leave(client: &mut PmiClient, server: &mut Server) {
    assert_eq!(client.poll_all_finalized(), Ok(false));
    client.finalize().unwrap();
    server.end_barrier();
    assert_eq!(client.poll_all_finalized(), Ok(false));
    server.answer();
    assert_eq!(server.barriers, 2);
    server.end_barrier();
    for _question_and_leave in 0..2 {
        assert_eq!(client.poll_all_finalized(), Ok(false));
        server.answer();
    }
    assert_eq!(client.poll_all_finalized(), Ok(true));
}

#[test]
fn finalizes_when_all_have() {
    let (mut client, mut server) = joined();
    take_leave(&mut client, &mut server);
    drop(server);
    assert_eq!(client.poll_all_finalized(), Ok(true), "nothing is needed of the server any more");
}

/// Between the two a rank says why it fails, and there are servers that kill it as soon as they hear of its end.
#[test]
fn without_leave_the_connection_ends_with_the_process_and_not_with_the_client() {
    let (mut client, mut server) = joined();
    take_leave(&mut client, &mut server);
    drop(client);
    assert!(matches!(server.channel.receive(), Err(ControlError::Closed)));

    let (mut client, mut server) = joined();
    client.finalize().unwrap();
    drop(client);
    assert!(matches!(server.channel.receive(), Ok(None)), "it has not got to its leave");

    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut channel = Channel::new(theirs.into()).unwrap();
    let session = Session::new(None, Some((0, 2)), 0);
    PmiClient::join_over(ours.into(), session, None, Duration::ZERO, Instant::now()).unwrap_err();
    assert!(matches!(channel.receive(), Ok(Some(_))));
    assert!(matches!(channel.receive(), Ok(None)), "it has not got its answer");
}

/// Hydra's fences of PMI-2 do not wait: a rank that took them for barriers closed its endpoint while its last packets
/// were on their way.
#[test]
fn a_fence_that_does_not_wait_ends_nobodys_job() {
    let (mut client, mut server) = joined();
    server.is_lax = true;
    client.finalize().unwrap();
    server.end_barrier();
    for _fence_and_question in 0..3 {
        assert_eq!(client.poll_all_finalized(), Ok(false));
        server.answer();
    }
    // The others have come.
    let answer = Message::new("kvs-get-response").with("found", "FALSE").with("rc", 0);
    server.channel.send(&answer).unwrap();
    assert_eq!(client.poll_all_finalized(), Ok(false));
    server.answer();
    assert_eq!(client.poll_all_finalized(), Ok(true));
}

#[test]
fn a_lost_server_is_an_error() {
    let (mut client, server) = joined();
    drop(server);
    assert!(client.lookup(Rank(0)).unwrap_err().message.contains("is lost"));
    assert!(client.finalize().is_err() && client.poll_all_finalized().is_err());
    assert_eq!(client.wait_fd(), None);
}

#[test]
fn no_server_is_an_error() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let session = Session::new(None, Some((0, 1)), 0);
    let error = PmiClient::join_over(ours.into(), session, None, SHORT, Instant::now()).unwrap_err();
    assert!(error.message.contains("no answer within 0.2 s"), "{error}");
    drop(theirs);
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = PmiTarget::Port { address: port.to_string(), id: 0 };
    let error = PmiClient::join(&target, None, None, LIMIT).unwrap_err();
    assert!(error.message.contains(&format!("Tried:\n  {port}")), "{error}");
}
