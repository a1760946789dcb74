// SPDX-License-Identifier: MIT OR Apache-2.0
//! After the mount the server has all files that it needs. Landlock keeps it from opening others, from starting programs and
//! from the network, whatever an image or a user may have brought it to do.

use landlock::{
    Access, AccessFs, AccessNet, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, ABI,
};
use std::os::fd::BorrowedFd;

/// Everything that Linux 6.12 can forbid; an older kernel forbids what it knows.
const KNOWN: ABI = ABI::V6;

/// Confines this thread, and all that it starts from now on. Only in `except`, a directory, files can be made, read, written
/// and removed. A sentence if the kernel has no Landlock.
pub fn confine(except: Option<BorrowedFd>) -> Result<(), String> {
    match enforce(except) {
        Ok(RulesetStatus::NotEnforced) => Err("this kernel has no Landlock".into()),
        Ok(_) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}

fn enforce(except: Option<BorrowedFd>) -> Result<RulesetStatus, RulesetError> {
    let writes = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile;
    let rules = except.map(|directory| Ok::<_, RulesetError>(PathBeneath::new(directory, writes)));
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .add_rules(rules)?
        .restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsFd;

    /// In a thread of its own: the others stay free.
    fn confined(except: Option<File>, act: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                confine(except.as_ref().map(AsFd::as_fd)).unwrap();
                act();
            });
            thread.join().unwrap();
        });
    }

    #[test]
    fn what_is_open_stays_and_nothing_else_can_be_opened_made_or_started() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("before");
        let mut before = File::options();
        let mut before = before
            .read(true)
            .write(true)
            .create_new(true)
            .open(&name)
            .unwrap();
        confined(None, || {
            before.write_all(b"still").unwrap();
            before.set_len(3).unwrap();
            let refused =
                |what: std::io::Error| assert_eq!(what.kind(), ErrorKind::PermissionDenied);
            refused(File::open(&name).unwrap_err());
            refused(File::open("/etc/passwd").unwrap_err());
            refused(fs::read_dir("/").unwrap_err());
            refused(File::create(folder.path().join("after")).unwrap_err());
            refused(fs::remove_file(&name).unwrap_err());
            refused(
                std::process::Command::new("/bin/true")
                    .status()
                    .unwrap_err(),
            );
            // Threads that are started now are confined, too.
            let thread = std::thread::spawn(|| File::open("/etc/passwd").unwrap_err());
            refused(thread.join().unwrap());
        });
        File::open(&name).unwrap();
    }

    #[test]
    fn files_of_one_directory_can_be_excepted() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        confined(Some(File::open(folder.path()).unwrap()), || {
            let below = folder.path().join("below");
            fs::create_dir(&below).unwrap();
            fs::write(below.join("part"), "copy").unwrap();
            fs::rename(below.join("part"), below.join("copy")).unwrap();
            let mut copy = String::new();
            let mut file = File::open(below.join("copy")).unwrap();
            file.read_to_string(&mut copy).unwrap();
            assert_eq!(copy, "copy");
            fs::remove_file(below.join("copy")).unwrap();
            let link = std::os::unix::fs::symlink(other.path(), below.join("link"));
            assert_eq!(link.unwrap_err().kind(), ErrorKind::PermissionDenied);
            fs::write(other.path().join("file"), "").unwrap_err();
        });
    }
}
