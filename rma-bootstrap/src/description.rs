//! What an agent of `rmarun` is told when it is started: how to find whom it belongs to, and what its host and the
//! hosts behind it are to run. It comes over the standard input of the agent, which is ssh's, so it is neither on a
//! command line nor in a file nor readable on the way. No descriptor in here.
//!
//! It begins with a magic, a version and the number of bytes behind these; numbers are little-endian with 32 bits, and
//! texts and lists begin with their lengths. Every length is checked before anything is kept.

use std::fmt;

/// Version of the description and of [`crate::tree`]. Both sides must speak the same one.
pub const VERSION: u32 = 1;

/// Bytes in front of a description: magic, version, number of the bytes behind.
pub const HEAD_BYTES: usize = 12;

/// Longest description, in bytes, its head not counted.
pub const BODY_BYTES_MAX: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"RMAd";

/// The description.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// What both sides of a connection of this job prove to know, as text.
    pub secret: String,
    /// Where the one to whom this agent belongs can be reached, the best first.
    pub candidates: Vec<String>,
    /// How long connecting may take, in milliseconds.
    pub patience_ms: u32,
    /// What holds for the whole job.
    pub job: JobTask,
    /// The hosts that are this agent's business: its own first, then those behind it.
    pub hosts: Vec<HostTask>,
}

/// What holds for the whole job.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct JobTask {
    /// The job's name.
    pub job_id: String,
    /// Number of ranks in the job.
    pub size: u32,
    /// In which order ranks take their places on a host, as a value of `--map-by`.
    pub map_by: String,
    /// To what ranks are bound, as a value of `--bind-to`.
    pub bind_to: String,
    /// Whether to say to what each rank is bound.
    pub reports_bindings: bool,
    /// Whether a person watches standard error.
    pub is_watched: bool,
    /// The network interface to use, or nothing.
    pub iface: String,
    /// The words of the command that starts an agent on a host.
    pub launch_agent: Vec<String>,
    /// The words behind the host's name on that command's line.
    pub agent_command: Vec<String>,
    /// The programs.
    pub programs: Vec<ProgramTask>,
}

/// A program.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ProgramTask {
    /// The program and its arguments.
    pub words: Vec<Vec<u8>>,
    /// Its working directory.
    pub directory: Vec<u8>,
    /// Variables to set, names and values in turn.
    pub variables: Vec<Vec<u8>>,
}

/// A host.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct HostTask {
    /// Its number in the job.
    pub host: u32,
    /// Its name.
    pub name: String,
    /// Its ranks, in order.
    pub ranks: Vec<RankTask>,
}

/// A rank.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RankTask {
    /// Its number.
    pub rank: u32,
    /// Which of the programs it runs.
    pub program: u32,
    /// Whether it reads the launcher's standard input.
    pub reads_input: bool,
}

/// Not shown: the secret.
impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret: _, candidates, patience_ms, job, hosts } = self;
        let mut shown = f.debug_struct("Description");
        shown.field("candidates", candidates).field("patience_ms", patience_ms);
        shown.field("job", job).field("hosts", hosts).finish_non_exhaustive()
    }
}

impl Description {
    /// The bytes of the description, head and body.
    ///
    /// # Errors
    /// When it is too long to be sent.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let mut out = Out { bytes: vec![0; HEAD_BYTES] };
        out.blob(self.secret.as_bytes());
        out.list(&self.candidates, |out, text| out.blob(text.as_bytes()));
        out.number(self.patience_ms);
        let job = &self.job;
        out.blob(job.job_id.as_bytes());
        out.number(job.size);
        [&job.map_by, &job.bind_to, &job.iface].into_iter().for_each(|text| out.blob(text.as_bytes()));
        out.bytes.extend_from_slice(&[job.reports_bindings.into(), job.is_watched.into()]);
        for words in [&job.launch_agent, &job.agent_command] {
            out.list(words, |out, word| out.blob(word.as_bytes()));
        }
        out.list(&job.programs, |out, program| {
            out.list(&program.words, |out, word| out.blob(word));
            out.blob(&program.directory);
            out.list(&program.variables, |out, text| out.blob(text));
        });
        out.list(&self.hosts, |out, host| {
            out.number(host.host);
            out.blob(host.name.as_bytes());
            out.list(&host.ranks, |out, task| {
                out.number(task.rank);
                out.number(task.program);
                out.bytes.push(task.reads_input.into());
            });
        });
        let body = out.bytes.len() - HEAD_BYTES;
        let body = u32::try_from(body).ok().filter(|body| *body as usize <= BODY_BYTES_MAX);
        let body =
            body.ok_or("the command lines and variables of the job are too long for agents on other hosts")?;
        out.bytes[..4].copy_from_slice(&MAGIC);
        out.bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        out.bytes[8..HEAD_BYTES].copy_from_slice(&body.to_le_bytes());
        Ok(out.bytes)
    }

    /// The number of bytes that follow this head.
    ///
    /// # Errors
    /// A message that says why it is none.
    pub fn body_len(head: &[u8; HEAD_BYTES]) -> Result<usize, String> {
        let mut input = In { rest: head };
        if input.array("head")? != MAGIC {
            return Err(
                "what comes over standard input is no description of a job; rmarun starts agents itself"
                    .into(),
            );
        }
        let version = input.number("version")?;
        if version != VERSION {
            return Err(format!(
                "rmarun speaks version {version} with its agents, and the one on this host version {VERSION}; install the \
                 same rmarun on all hosts, or name another with --agent-path"
            ));
        }
        let len = input.number("length")? as usize;
        if len > BODY_BYTES_MAX {
            return Err(format!("a description of {len} bytes is more than the {BODY_BYTES_MAX} allowed"));
        }
        Ok(len)
    }

    /// The description that a body holds.
    ///
    /// # Errors
    /// A message that names the field that is wrong.
    pub fn decode(body: &[u8]) -> Result<Self, String> {
        let mut input = In { rest: body };
        let secret = input.text("secret")?;
        let candidates = input.list("candidates", In::text)?;
        let patience_ms = input.number("patience")?;
        let (job_id, size) = (input.text("job")?, input.number("size")?);
        let (map_by, bind_to, iface) = (input.text("map-by")?, input.text("bind-to")?, input.text("iface")?);
        let (reports_bindings, is_watched) = (input.switch("bindings")?, input.switch("terminal")?);
        let launch_agent = input.list("launch agent", In::text)?;
        let agent_command = input.list("agent", In::text)?;
        let programs = input.list("programs", |input, _| {
            let words = input.list("words", In::blob)?;
            let directory = input.blob("directory")?;
            Ok(ProgramTask { words, directory, variables: input.list("variables", In::blob)? })
        })?;
        let hosts = input.list("hosts", |input, _| {
            let (host, name) = (input.number("host")?, input.text("name")?);
            let rank = |input: &mut In<'_>, _: &'static str| {
                let (rank, program) = (input.number("rank")?, input.number("program")?);
                Ok(RankTask { rank, program, reads_input: input.switch("input")? })
            };
            Ok(HostTask { host, name, ranks: input.list("ranks", rank)? })
        })?;
        if !input.rest.is_empty() {
            return Err(format!("the description has {} bytes behind its end", input.rest.len()));
        }
        let ranks = hosts.iter().flat_map(|host| &host.ranks);
        let is_known = |task: &RankTask| task.rank < size && (task.program as usize) < programs.len();
        if hosts.is_empty() || !ranks.clone().all(is_known) {
            return Err("the description has no host, or ranks or programs that are not in the job".into());
        }
        if programs.iter().any(|program| program.words.is_empty() || program.variables.len() % 2 != 0) {
            return Err("the description has a program without words, or a variable without a value".into());
        }
        let job = JobTask {
            job_id,
            size,
            map_by,
            bind_to,
            reports_bindings,
            is_watched,
            iface,
            launch_agent,
            agent_command,
            programs,
        };
        Ok(Self { secret, candidates, patience_ms, job, hosts })
    }
}

/// What is being written.
struct Out {
    bytes: Vec<u8>,
}

impl Out {
    fn number(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// What is longer than 32 bits can say makes the whole too long, which [`Description::encode`] finds.
    fn blob(&mut self, bytes: &[u8]) {
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(bytes);
    }

    fn list<T>(&mut self, items: &[T], mut one: impl FnMut(&mut Self, &T)) {
        self.number(u32::try_from(items.len()).unwrap_or(u32::MAX));
        items.iter().for_each(|item| one(self, item));
    }
}

/// What is being read.
struct In<'a> {
    rest: &'a [u8],
}

impl In<'_> {
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], String> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| ends_inside(field))?;
        self.rest = rest;
        Ok(*head)
    }

    fn number(&mut self, field: &'static str) -> Result<u32, String> {
        self.array(field).map(u32::from_le_bytes)
    }

    fn switch(&mut self, field: &'static str) -> Result<bool, String> {
        match self.array::<1>(field)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(format!("the description's field '{field}' is {byte}, neither 0 nor 1")),
        }
    }

    fn blob(&mut self, field: &'static str) -> Result<Vec<u8>, String> {
        let len = self.number(field)? as usize;
        let (head, rest) = self.rest.split_at_checked(len).ok_or_else(|| ends_inside(field))?;
        self.rest = rest;
        Ok(head.to_vec())
    }

    fn text(&mut self, field: &'static str) -> Result<String, String> {
        String::from_utf8(self.blob(field)?)
            .map_err(|_| format!("the description's field '{field}' is no text"))
    }

    /// A list's items take at least a byte each, so that its length cannot ask for more than there is.
    fn list<T>(
        &mut self,
        field: &'static str,
        mut one: impl FnMut(&mut Self, &'static str) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let count = self.number(field)? as usize;
        if count > self.rest.len() {
            return Err(ends_inside(field));
        }
        (0..count).map(|_| one(self, field)).collect()
    }
}

fn ends_inside(field: &'static str) -> String {
    format!("the description ends inside the field '{field}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        let program = ProgramTask {
            words: vec![b"./halo".to_vec(), b"\xff".to_vec()],
            directory: b"/tmp".to_vec(),
            variables: vec![b"A".to_vec(), b"1".to_vec()],
        };
        let ranks = vec![RankTask { rank: 3, program: 0, reads_input: true }];
        let hosts = vec![HostTask { host: 2, name: "b".into(), ranks }, HostTask::default()];
        let job = JobTask { job_id: "j".into(), size: 4, programs: vec![program], ..JobTask::default() };
        let candidates = vec!["10.0.0.1:4711".into(), "[fe80::1%eth0]:4711".into()];
        Description { secret: "a5a5".into(), candidates, patience_ms: 1000, job, hosts }
    }

    #[test]
    fn comes_out_as_it_went_in() {
        let bytes = description().encode().unwrap();
        let (head, body) = bytes.split_first_chunk::<HEAD_BYTES>().unwrap();
        assert_eq!(Description::body_len(head), Ok(body.len()));
        assert_eq!(Description::decode(body), Ok(description()));
        for len in 0..body.len() {
            assert!(Description::decode(&body[..len]).is_err(), "{len} bytes of it");
        }
        assert!(Description::decode(&[body, &[0]].concat()).unwrap_err().contains("behind its end"));
        assert!(!format!("{:?}", description()).contains("a5a5"), "the secret is not shown");
    }

    #[test]
    fn what_does_not_agree_is_refused() {
        let wrong = |change: fn(&mut Description)| {
            let mut description = description();
            change(&mut description);
            let bytes = description.encode().unwrap();
            Description::decode(&bytes[HEAD_BYTES..]).unwrap_err()
        };
        assert!(wrong(|description| description.hosts.clear()).contains("no host"));
        assert!(wrong(|description| description.job.size = 3).contains("not in the job"));
        assert!(wrong(|description| description.job.programs.clear()).contains("not in the job"));
        assert!(wrong(|description| description.job.programs[0].words.clear()).contains("without words"));
        assert!(wrong(|description| drop(description.job.programs[0].variables.pop())).contains("a value"));
    }

    #[test]
    fn a_head_of_something_else_is_named() {
        assert!(Description::body_len(b"Welcome to b").unwrap_err().contains("no description"));
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        assert!(Description::body_len(&head).unwrap_err().contains("version 0"));
        head[4] = VERSION as u8;
        head[8..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Description::body_len(&head).unwrap_err().contains("more than"));
    }
}
