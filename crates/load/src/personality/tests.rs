// SPDX-License-Identifier: MIT OR Apache-2.0
use super::set::Files;
use super::*;
use crate::testing::{count_entries, scratch};

const ENTRIES: u32 = 200;

fn small(flow: Vec<Flow>, prealloc_percent: u8) -> Personality {
    Personality {
        filesets: vec![FileSet {
            name: "set".into(),
            entries: ENTRIES,
            width: 5,
            mean_bytes: 8 << 10,
            prealloc_percent,
        }],
        threads: vec![Threads { count: 1, flow }],
        duration_s: 0.2,
        ..Personality::default()
    }
}

fn fileset() -> String {
    "set".into()
}

/// Filebench's varmail.f.
fn mail() -> Vec<Flow> {
    let io_bytes = 16 << 10;
    let append = Flow::AppendFileRand {
        fd: 1,
        io_bytes,
        fileset: None,
    };
    vec![
        Flow::DeleteFile { fileset: fileset() },
        Flow::CreateFile {
            fileset: fileset(),
            fd: 1,
        },
        append.clone(),
        Flow::Fsync { fd: 1 },
        Flow::CloseFile { fd: 1 },
        Flow::OpenFile {
            fileset: fileset(),
            fd: 1,
        },
        Flow::ReadWholeFile { fd: 1, io_bytes },
        append,
        Flow::CloseFile { fd: 1 },
        Flow::StatFile { fileset: fileset() },
    ]
}

#[test]
fn makes_the_part_of_the_files_that_is_there_at_the_beginning() {
    for (percent, least, most) in [(0, 0, 0), (80, 140, 180), (100, 200, 200)] {
        let dir = scratch();
        let load = Personality {
            stage: Stage::Create,
            ..small(mail(), percent)
        };
        let report = load.run(dir.path()).unwrap();
        let found = count_entries(dir.path());
        assert!((least..=most).contains(&found.files), "{}", found.files);
        assert_eq!(report.user_written_bytes, found.bytes);
        // The directory of the personality is one more.
        let inner = &report.details["trees"]["set"]["inner"];
        assert_eq!(*inner, found.directories - 1);
    }
}

#[test]
fn sizes_have_the_mean_of_the_set() {
    let set = FileSet {
        entries: 20_000,
        ..small(mail(), 100).filesets.remove(0)
    };
    let sizes = Set::new(&set, 0, Path::new("/"), 1).unwrap().planned;
    let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
    assert!((mean / 8192.0 - 1.0).abs() < 0.05, "{mean}");
}

#[test]
fn files_are_taken_in_turn_past_those_that_are_busy() {
    let mut files = Files {
        present: [1, 3, 5].into(),
        ..Files::default()
    };
    let mut taken = || files.take(true);
    assert_eq!([taken(), taken(), taken()], [Some(1), Some(3), Some(5)]);
    assert_eq!(taken(), None);
    files.busy.remove(&3);
    assert_eq!(files.take(true), Some(3));
    assert_eq!(files.take(false), None);
}

#[test]
fn a_file_that_is_open_is_not_deleted() {
    let dir = scratch();
    let keeps = [
        Flow::OpenFile {
            fileset: fileset(),
            fd: 1,
        },
        Flow::DeleteFile { fileset: fileset() },
        Flow::CloseFile { fd: 1 },
    ];
    let mut load = small(keeps.to_vec(), 100);
    load.filesets[0].entries = 1;
    let report = load.run(dir.path()).unwrap();
    assert!(report.operations["open"].as_u64() >= Some(1));
    assert!(!report.operations.contains_key("unlink"));
}

/// What the load says it did is what is there, by several threads, in two stages.
#[test]
fn counts_agree_with_the_directory() {
    let dir = scratch();
    let stage = |stage, threads| {
        let mut load = Personality {
            stage,
            ..small(mail(), 80)
        };
        load.threads[0].count = threads;
        load.run(dir.path()).unwrap()
    };
    let made = stage(Stage::Create, 1);
    let done = stage(Stage::Run, 4);
    let count = |report: &Report, of: &str| report.operations[of].as_u64().unwrap();
    let files = count(&made, "create") + count(&done, "create") - count(&done, "unlink");
    assert_eq!(count_entries(dir.path()).files, files);
    assert!(done.user_read_bytes > 0);
}

#[test]
fn the_default_is_filebenchs_web_server() {
    let dir = scratch();
    let load = Personality {
        duration_s: 0.2,
        ..Personality::default()
    };
    let report = load.run(dir.path()).unwrap();
    let count = |of: &str| report.operations[of].as_u64().unwrap();
    assert_eq!(count("create"), 1001);
    assert!(count("read") > count("write") - 1001);
}

#[test]
fn what_cannot_be_done_is_said() {
    let open = |fileset: &str| Flow::OpenFile {
        fileset: fileset.into(),
        fd: 1,
    };
    for (flow, percent, said) in [
        (vec![open("other")], 100, "no file set named other"),
        (vec![open("set")], 0, "no file of set is left that exists"),
        (vec![open("set"), open("set")], 100, "fd 1 was open already"),
        (vec![Flow::CloseFile { fd: 1 }], 100, "fd 1 is not open"),
    ] {
        let dir = scratch();
        let error = small(flow, percent).run(dir.path()).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}
