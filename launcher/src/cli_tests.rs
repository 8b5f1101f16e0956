//! The command line as people type it.

use super::*;

fn parse(words: &[&str]) -> Result<Vec<Cli>, clap::Error> {
    Cli::parse_words(words.iter().map(OsString::from))
}

fn one(words: &[&str]) -> Cli {
    parse(words).unwrap().remove(0)
}

fn error(words: &[&str]) -> String {
    parse(words).unwrap_err().to_string()
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn number_of_ranks_as_people_type_it() {
    for words in [&["-n", "4", "p"][..], &["-n4", "p"], &["-np", "4", "p"], &["--np", "4", "p"]] {
        assert_eq!(one(words).ranks, Some(4), "{words:?}");
    }
    assert!(error(&["-n", "0", "p"]).contains("at least 1 rank"));
    assert!(error(&["-n", "x", "p"]).contains("whole number"));
    assert!(error(&["-n", "-1", "p"]).contains("-1"));
    assert!(error(&["-n", "70000", "p"]).contains("65536"));
    assert!(error(&["-n", "2"]).contains("PROGRAM"));
}

#[test]
fn the_program_keeps_its_own_options() {
    for words in
        [&["-n", "2", "p", "-np", "3", "--", "-x"][..], &["-n", "2", "--", "p", "-np", "3", "--", "-x"]]
    {
        assert_eq!(one(words).program, ["p", "-np", "3", "--", "-x"], "{words:?}");
    }
    assert!(parse(&["--wd", "-np", "-np", "2", "p"]).is_err(), "a value of an option is not an option");
    assert!(error(&["-n", "2", "--tga-output", "p"]).contains("--tag-output"));
    assert!(parse(&["-n"]).is_err());
}

#[test]
fn times_and_variables() {
    let cli = one(&["-n", "1", "--timeout", "0.5", "-x", "A", "-x", "B=c=d", "-genv", "C", "-1", "p"]);
    assert_eq!(cli.timeout, Some(Duration::from_millis(500)));
    assert_eq!(cli.exports, [("A".into(), None), ("B".into(), Some("c=d".into()))]);
    assert_eq!(cli.genv, ["C", "-1"]);
    assert_eq!(cli.grace, Duration::from_secs(2));
    assert!(error(&["-n", "1", "--timeout", "0", "p"]).contains("above 0"));
    assert!(error(&["-n", "1", "-x", "=1", "p"]).contains("-x NAME"));
    assert!(one(&["--help-env"]).help_env);
}

#[test]
fn options_of_mpiexec_with_one_dash() {
    let cli = one(&["-ppn", "3", "-host", "a:2,b", "-wdir", "/x", "-bind-to", "numa", "p", "-host"]);
    assert_eq!((cli.ppn, cli.host), (Some(3), vec!["a:2,b".to_owned()]));
    assert_eq!((cli.wdir, cli.bind_to), (Some("/x".into()), Some(BindTo::Numa)));
    assert_eq!(cli.program, ["p", "-host"]);
    assert_eq!(one(&["-f", "hosts", "p"]).hostfile, Some("hosts".into()));
    assert_eq!(one(&["-machinefile", "hosts", "p"]).hostfile, Some("hosts".into()));
    assert!(error(&["-f", "hosts", "-H", "a", "p"]).contains("cannot be used with"));
    assert!(error(&["-n", "1", "--bind-to", "nume", "p"]).contains("numa"));
}

#[test]
fn options_of_srun_and_others() {
    let cli =
        one(&["--ntasks=4", "--ntasks-per-node", "2", "-w", "a", "--host", "b", "-l", "-D", "/x", "p", "-l"]);
    assert_eq!((cli.ranks, cli.ppn, cli.tag_output, cli.wdir), (Some(4), Some(2), true, Some("/x".into())));
    assert_eq!((cli.host, cli.program), (vec!["a".to_owned(), "b".into()], vec!["p".into(), "-l".into()]));
    let cli = one(&[
        "--ntasks",
        "4",
        "-perhost=2",
        "--nodelist",
        "a",
        "--label",
        "--chdir=/x",
        "-bind-to=none",
        "p",
    ]);
    assert_eq!((cli.ranks, cli.ppn, cli.tag_output, cli.wdir), (Some(4), Some(2), true, Some("/x".into())));
    assert_eq!(cli.bind_to, Some(BindTo::None));
    let words =
        ["-genvall", "--oversubscribe", "-n", "1", "--allow-run-as-root", "-env", "A", "-b c", "p", "-env"];
    let cli = one(&words);
    assert_eq!(
        (cli.exports, cli.program),
        (vec![("A".into(), Some("-b c".into()))], vec!["p".into(), "-env".into()])
    );
    let parts = parse(&["-n", "1", "-env", "A", "1", "p", ":", "-n", "1", "-env", "A", "2", "q"]).unwrap();
    assert_eq!(parts[1].exports, [("A".into(), Some("2".into()))]);
}

#[test]
fn unknown_options_are_named_as_they_were_typed() {
    for word in ["-genvnone", "-usize", "--rankfile", "-path"] {
        let error = error(&["-n", "2", word, "A", "p", "-genvnone2"]);
        assert!(error.contains(&format!("'{word}' is no option of rmarun")), "{error}");
        assert!(error.contains("--help") && !error.contains("as a value"), "{error}");
    }
    assert!(error(&["-N", "2", "p"]).contains("--ppn N"));
    assert!(error(&["-N2", "p"]).contains("--ppn N"));
    for (words, advice) in [
        (&["-t", "5"][..], "--timeout S"),
        (&["--time", "5"], "--timeout S"),
        (&["--cpu-bind=cores"], "--bind-to core"),
        (&["-c4"], "--bind-to core"),
        (&["-outfile-pattern", "f"], "--output-dir DIR"),
        (&["-genvlist", "A,B"], "-x NAME"),
        (&["--mca", "btl", "tcp"], "--help-env"),
        (&["-rr"], "--map-by node"),
        (&["-launcher", "rsh"], "--launch-agent"),
        (&["-s", "all"], "--stdin"),
    ] {
        let error = error(&[&["-n", "2"], words, &["p"]].concat());
        assert!(error.contains(&format!("{} is", words[0].split('=').next().unwrap())), "{error}");
        assert!(error.contains(advice), "{error}");
    }
    assert_eq!(one(&["-n", "2", "--quiet", "p", "--quiet"]).program, ["p", "--quiet"]);
}

#[test]
fn several_programs() {
    let parts = parse(&["-n", "1", "--verbose", "a", "-v", ":", "-np", "2", "-x", "A=1", "b", "c"]).unwrap();
    let programs: Vec<_> =
        parts.iter().map(|part| (part.ranks, part.program.len(), part.exports.len())).collect();
    assert_eq!(programs, [(Some(1), 2, 0), (Some(2), 2, 1)]);
    assert_eq!(one(&["-n", "1", "--", "a", ":", "b"]).program, ["a", ":", "b"]);
    assert!(error(&["-n", "1", "a", ":", "-n", "1", "--keep-going", "b"])
        .contains("--keep-going is for the whole"));
    assert!(error(&["-n", "1", "a", ":", "b"]).contains("-n <N>"));
    assert!(error(&["-ppn", "1", "a", ":", "-n", "1", "b"]).contains("each needs"));
    assert!(error(&["-n", "1", "a", ":"]).contains("a ':' stands between two programs"));
    assert!(error(&[":", "-n", "1", "a"]).contains("a ':' stands between two programs"));
}

#[test]
fn who_reads_standard_input() {
    assert_eq!(one(&["-n", "1", "p"]).stdin, Readers::One(0));
    assert_eq!(one(&["-n", "1", "--stdin", "all", "p"]).stdin, Readers::All);
    assert!(error(&["-n", "1", "--stdin", "some", "p"]).contains("all or to none"));
    assert!(
        Readers::One(3).has(3) && !Readers::One(3).has(2) && Readers::All.has(9) && !Readers::None.has(0)
    );
}
