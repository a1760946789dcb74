// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program itself, mounted through the kernel's FUSE: what users get. Needs root and `/dev/fuse`, and says so if they are
//! not there. `SAFS_PROGRAM` names another build to be tried.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How often it is looked whether something has happened that must, and how long between.
const LOOKS: usize = 600;
const PAUSE: Duration = Duration::from_millis(50);
/// Somebody who is not root.
pub const NOBODY: u32 = 65534;

/// The program.
pub fn program() -> PathBuf {
    let other = std::env::var_os("SAFS_PROGRAM");
    other.map_or_else(|| env!("CARGO_BIN_EXE_safs").into(), PathBuf::from)
}

/// Runs the program to its end.
pub fn safs(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().unwrap()
}

/// Runs the program, which has to succeed.
pub fn succeed(arguments: &[&str]) -> String {
    let output = safs(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "safs {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into()
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("this did not come: {what}");
}

/// A process that does not outlive its test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with an image, and where it is mounted.
pub struct Place {
    folder: TempDir,
    server: Option<Child>,
}

impl Place {
    /// An image of `size`, with zones of 1 MiB.
    pub fn new(size: &str) -> Self {
        let place = Place::empty();
        let image = place.image();
        let image = image.to_str().unwrap();
        succeed(&["mkfs", "--zone-size", "1M", "--size", size, image]);
        place
    }

    /// No image yet.
    pub fn empty() -> Self {
        assert!(
            rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists(),
            "these tests mount: they need root and /dev/fuse"
        );
        let folder = TempDir::new().unwrap();
        // Others have to get to the mount point.
        rustix::fs::chmod(folder.path(), 0o755.into()).unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        Place {
            folder,
            server: None,
        }
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// The image's name, for arguments.
    pub fn image_name(&self) -> String {
        self.image().to_str().unwrap().into()
    }

    /// A name in the folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A name below the mount point.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join("mnt").join(name)
    }

    fn is_mounted(&self) -> bool {
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
        device(&self.at("")) != device(self.folder.path())
    }

    /// Mounts with these options, and gives the process that serves.
    pub fn mount(&mut self, options: &str) -> u32 {
        let mut server = Command::new(program())
            .args(["mount", "--foreground", "-o", options])
            .args([self.image(), self.at("")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        until("the mount", || {
            assert_eq!(server.try_wait().unwrap(), None, "the server ended");
            self.is_mounted()
        });
        let id = server.id();
        self.server = Some(server);
        id
    }

    /// Unmounts, and waits for the server, which has to succeed.
    pub fn unmount(&mut self) {
        let mut server = self.server.take().unwrap();
        let unmounted = Command::new("umount").arg(self.at("")).status().unwrap();
        if !unmounted.success() {
            let _ = server.kill();
        }
        let status = server.wait().unwrap();
        assert!(unmounted.success() && status.success(), "{status}");
    }

    /// Waits for the server's end, which has to be a success.
    pub fn wait(&mut self) {
        let status = self.server.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Kills the server as it is.
    pub fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        self.let_go();
    }

    fn let_go(&self) {
        let lazy = Command::new("umount").arg("-l").arg(self.at("")).output();
        assert!(lazy.is_ok_and(|lazy| lazy.status.success()) || !self.is_mounted());
    }

    /// Has a shell do something in the mount, as nobody. Gives what it said, on both its outputs, if it failed.
    pub fn as_nobody(&self, script: &str) -> Result<(), String> {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(self.at(""));
        let output = shell.uid(NOBODY).gid(NOBODY).output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
            let lazy = Command::new("umount").arg("-l").arg(self.at("")).output();
            drop(lazy);
        }
    }
}
