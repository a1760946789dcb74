// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs retain`.

use crate::common::{bytes, Outcome};
use rustix::fs::{getxattr, removexattr, setxattr, XattrFlags};
use safs::Retention;
use std::path::PathBuf;
use std::process::ExitCode;

const NAME: &str = "user.safs.retain";

#[derive(clap::Args)]
pub struct Arguments {
    /// The file, whose beginning will go, or the directory, whose oldest files will
    path: PathBuf,
    /// The newest so many bytes (K, M, G, T)
    #[arg(long, value_parser = bytes)]
    bytes: Option<u64>,
    /// What is younger (s, m, h, d)
    #[arg(long, value_parser = seconds)]
    age: Option<u64>,
    /// What goes is copied first, to the directory that the mount's option cold= names. Only root can say so
    #[arg(long)]
    copy: bool,
    /// Keeps everything from now on
    #[arg(long, conflicts_with_all = ["bytes", "age", "copy"])]
    off: bool,
}

fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text}: expected a number, perhaps with s, m, h or d");
    let (digits, unit) =
        text.split_at(text.len() - usize::from(text.ends_with(['s', 'm', 'h', 'd'])));
    let each = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => 1,
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(each).ok_or_else(wrong)
}

pub fn act(arguments: &Arguments) -> Outcome {
    let path = &arguments.path;
    let failed = |why: rustix::io::Errno| format!("{}: {why}", path.display());
    if arguments.off {
        removexattr(path, NAME).map_err(failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.bytes.is_none() && arguments.age.is_none() {
        let mut value = vec![0; 4096];
        let length = getxattr(path, NAME, &mut value).map_err(failed)?;
        println!("{}", String::from_utf8_lossy(&value[..length]));
        return Ok(ExitCode::SUCCESS);
    }
    let retention = Retention {
        bytes: arguments.bytes,
        seconds: arguments.age,
        is_copied: arguments.copy,
    };
    let value = retention.encode();
    setxattr(path, NAME, value.as_bytes(), XattrFlags::empty()).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
