// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run: hands pieces of work to processes, adds up what they reached, and fails if something was not.

use crate::board::{Board, Piece};
use crate::{Arguments, Suite};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Runs a suite; says whether nothing failed and everything was reached.
pub fn act(arguments: &Arguments) -> Result<bool, String> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&is_over));
        registered.map_err(|why| why.to_string())?;
    }
    let board = Mutex::new(Board::new(arguments)?);
    let bar = ProgressBar::new(arguments.count);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {per_sec} {eta} {msg}");
    bar.set_style(style.map_err(|why| why.to_string())?);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let Some(piece) = board.lock().unwrap().next() else {
                        return;
                    };
                    if let Err(why) = work(arguments, &piece, &board, &bar, &is_over) {
                        failure.lock().unwrap().get_or_insert(why);
                        is_over.store(true, Relaxed);
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    if let Some(why) = failure.into_inner().unwrap() {
        return Err(why);
    }
    let board = board.into_inner().unwrap();
    board.finish(arguments, is_over.load(Relaxed))
}

/// One process; its lines go to the board.
fn work(
    arguments: &Arguments,
    piece: &Piece,
    board: &Mutex<Board>,
    bar: &ProgressBar,
    is_over: &AtomicBool,
) -> Result<(), String> {
    let suite = match arguments.suite {
        Suite::Cuts => "cuts",
        Suite::Model => "model",
        Suite::Room => "room",
        Suite::Fuzz => "fuzz",
    };
    let program = std::env::current_exe().map_err(|why| why.to_string())?;
    let mut child = Command::new(program)
        .args([suite, "--config", &piece.config, "--work"])
        .args([piece.seeds.start.to_string(), piece.seeds.end.to_string()])
        .args(arguments.steady.then_some("--steady"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|why| format!("a process for the work: {why}"))?;
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut has_failed = false;
    for line in lines {
        let line = line.map_err(|why| why.to_string())?;
        let Ok(line) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let mut board = board.lock().unwrap();
        if line.get("failed").is_some() {
            has_failed = true;
            tell(bar, &board.fail(piece, &line));
        } else {
            board.add(piece, &line);
        }
        bar.set_position(board.done());
        bar.set_message(piece.config.clone());
    }
    let status = child.wait().map_err(|why| why.to_string())?;
    if !status.success() && !has_failed && !is_over.load(Relaxed) {
        let mut board = board.lock().unwrap();
        tell(bar, &board.end_silently(piece, &status.to_string()));
    }
    Ok(())
}

/// Says something, whether or not there is a terminal to draw on.
fn tell(bar: &ProgressBar, text: &str) {
    bar.suspend(|| eprintln!("{text}"));
}
