// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mount: its options, the processes and threads that it has, and its end.
//!
//! One process serves. It opens the disk, mounts, and then confines itself (`sandbox`): it can open no other file. As nobody
//! confined can unmount either, a second process does that when it is told to; it knows the mount's directory and nothing of
//! the file system.

use crate::cold::{send_all, Cold};
use crate::common::{opened, Outcome, PlacementName};
use crate::fuse::{locked, now_ns, Adapter, Shared};
use crate::sandbox;
use crate::say::{self, say};
use rustix::mount::{unmount, UnmountFlags};
use safs::{FileSystem, Options};
use safs_tool::host::HostDevice;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked for what a retention sends elsewhere, and after a failure.
const SEND_EVERY: Duration = Duration::from_secs(1);
const SEND_AGAIN: Duration = Duration::from_secs(60);
/// Signals to end.
const ENDS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];
/// Set for a child that is to say when it has mounted.
const READY: &str = "SAFS_READY";
/// What is told to the process that unmounts, and what it says when it has.
const UNMOUNT: &[u8] = b"unmount\n";
const DONE: &str = "done";

/// What a mount was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// Other users may use it, too.
    pub allow_other: bool,
    /// Where data go first.
    pub placement: PlacementName,
    /// Where retentions copy what they give up.
    pub cold: Option<PathBuf>,
    /// Device nodes can be opened.
    dev: bool,
    /// Set-user-ID bits and capabilities count.
    suid: bool,
    exec: bool,
    sync: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            allow_other: false,
            placement: PlacementName::Auto,
            cold: None,
            dev: false,
            suid: false,
            exec: true,
            sync: false,
        }
    }
}

impl MountOptions {
    /// Takes an option of mount(8) in. Of two that contradict each other the last counts.
    pub fn add(&mut self, option: &str) -> Result<(), String> {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "placement=log" => self.placement = PlacementName::Log,
            "placement=auto" => self.placement = PlacementName::Auto,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            // What is so anyway, and what is for those who read /etc/fstab.
            "" | "defaults" | "noatime" | "nodiratime" | "relatime" | "auto" | "noauto"
            | "nofail" | "nouser" | "_netdev" => {}
            _ if option.starts_with("x-") || option.starts_with("comment=") => {}
            _ => match option.strip_prefix("cold=") {
                Some(directory) => self.cold = Some(directory.into()),
                None => return Err(format!("{option}: no such option of a mount")),
            },
        }
        Ok(())
    }

    fn config(&self, device: &Path, read_only: bool) -> fuser::Config {
        use fuser::MountOption as Kernel;
        let either = |is_first, first, second| if is_first { first } else { second };
        let mut config = fuser::Config::default();
        config.mount_options = vec![
            Kernel::FSName(device.display().to_string()),
            Kernel::Subtype("safs".into()),
            Kernel::DefaultPermissions,
            Kernel::NoAtime,
            either(read_only, Kernel::RO, Kernel::RW),
            either(self.dev, Kernel::Dev, Kernel::NoDev),
            either(self.suid, Kernel::Suid, Kernel::NoSuid),
            either(self.exec, Kernel::Exec, Kernel::NoExec),
            either(self.sync, Kernel::Sync, Kernel::Async),
        ];
        if self.allow_other {
            config.acl = fuser::SessionACL::All;
        }
        config
    }
}

/// This program once more. A group is named, its own, so that the standard library starts it by fork: posix_spawn of glibc asks
/// for the handler of each signal, which takes a mount 0.25 ms where a call takes 2 us.
fn again() -> io::Result<Command> {
    let mut program = Command::new(std::env::current_exe()?);
    program.gid(rustix::process::getgid().as_raw());
    Ok(program)
}

/// Starts this program again, in a session of its own, and waits until it has mounted. The child's standard output is a
/// pipe: a byte means that it is mounted.
pub fn in_background(arguments: &[String]) -> Outcome {
    let failed = |why: io::Error| format!("starting in the background: {why}");
    let mut child = again()
        .map_err(failed)?
        .args(arguments)
        .arg("--foreground")
        .env(READY, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut ready = [0];
    let stdout = child.stdout.as_mut();
    if stdout.is_some_and(|stdout| stdout.read_exact(&mut ready).is_ok()) {
        return Ok(ExitCode::SUCCESS);
    }
    // It has said why on standard error.
    let status = child.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// What a server in the background needs once it can open nothing any more.
struct Background {
    log: Option<UnixDatagram>,
    nothing: File,
}

impl Background {
    /// None in the foreground.
    fn prepare() -> io::Result<Option<Self>> {
        if std::env::var_os(READY).is_none() {
            return Ok(None);
        }
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        let log = say::log();
        Ok(Some(Background { log, nothing }))
    }

    /// Tells the one who waits that it is mounted, and lets go of what the program was started with.
    fn tell_mounted(self) {
        // Signals for the group of whoever started it are not for it.
        let _ = rustix::process::setsid();
        let _ = std::env::set_current_dir("/");
        let mut stdout = io::stdout();
        let _ = stdout.write_all(b"m").and_then(|()| stdout.flush());
        say::to_background(self.log, &self.nothing);
    }
}

/// Mounts, and serves until it is unmounted.
pub fn mount(device: &Path, directory: &Path, options: &MountOptions) -> Outcome {
    let wants_to_write = !options.read_only;
    let cold = options.cold.as_deref().map(Cold::open).transpose()?;
    let cold = Arc::new(cold);
    let core = Options {
        read_only: options.read_only,
        ..options.placement.options()
    };
    let fs = opened(device, core)?;
    if let (Some(why), true) = (fs.refusal(), wants_to_write) {
        say(format_args!(
            "{}: mounted read-only: {why}",
            device.display()
        ));
    }
    let config = options.config(device, fs.refusal().is_some());
    let fs: Shared<HostDevice> = Arc::new(Mutex::new(Some(fs)));
    let adapter = Adapter::new(Arc::clone(&fs));
    let except = cold.as_ref().as_ref().map(Cold::directory);
    let served = serve(adapter, directory, &config, except, |unmounter| {
        start_threads(&fs, &cold, unmounter)
    });
    let fs = locked(&fs).take();
    let unmounted = fs.map_or(Ok(()), |fs| fs.unmount().map(drop));
    served.map_err(|why| format!("{}: {why}", directory.display()))?;
    unmounted.map_err(|error| format!("{}: {error}", device.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Mounts, confines this program, and answers the kernel until it is unmounted. What `start` starts is confined, too.
fn serve<F: fuser::Filesystem>(
    filesystem: F,
    directory: &Path,
    config: &fuser::Config,
    except: Option<BorrowedFd>,
    start: impl FnOnce(Arc<Mutex<Unmounter>>) -> io::Result<()>,
) -> io::Result<()> {
    let directory = directory.canonicalize()?;
    let background = Background::prepare()?;
    let session = fuser::Session::new(filesystem, &directory, config)?;
    let unmounter = Arc::new(Mutex::new(Unmounter::start(&directory)?));
    if let Err(why) = sandbox::confine(except) {
        say(format_args!("the server is not confined: {why}"));
    }
    let served = start(Arc::clone(&unmounter)).and_then(|()| {
        background.into_iter().for_each(Background::tell_mounted);
        session.run()
    });
    if served.is_err() {
        // Nobody would answer there any more.
        let _ = held(&unmounter).unmount();
    }
    served
}

fn start_threads(
    fs: &Shared<HostDevice>,
    cold: &Arc<Option<Cold>>,
    unmounter: Arc<Mutex<Unmounter>>,
) -> io::Result<()> {
    let ticking = Arc::clone(fs);
    // Writes what has waited for long enough; ends with the program.
    std::thread::spawn(move || loop {
        std::thread::sleep(Duration::from_secs(1));
        match locked(&ticking).as_mut().map(|fs| fs.tick(now_ns())) {
            Some(Ok(())) => {}
            Some(Err(error)) => say(error),
            None => return,
        }
    });
    let (sending, cold) = (Arc::clone(fs), Arc::clone(cold));
    // Sends what is to be kept elsewhere; ends with the program.
    std::thread::spawn(move || loop {
        let failures = send_all(&sending, cold.as_ref().as_ref());
        failures.iter().for_each(say);
        std::thread::sleep(if failures.is_empty() {
            SEND_EVERY
        } else {
            SEND_AGAIN
        });
    });
    unmount_when_signalled(Arc::clone(fs), unmounter)
}

/// A signal to end makes everything durable and unmounts; where files are open, only the first. An unmount that is under
/// way goes on: the kernel does not wait for its end, and whoever shuts the host down sends signals.
fn unmount_when_signalled(
    fs: Shared<HostDevice>,
    unmounter: Arc<Mutex<Unmounter>>,
) -> io::Result<()> {
    let mut signals = Signals::new(ENDS)?;
    std::thread::spawn(move || {
        for _ in &mut signals {
            if let Some(Err(error)) = locked(&fs).as_mut().map(FileSystem::sync) {
                say(error);
            }
            if let Err(why) = held(&unmounter).unmount() {
                say(format_args!("not unmounted: {why}"));
            }
        }
    });
    Ok(())
}

/// The process that unmounts, and how it is told to.
struct Unmounter {
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Unmounter {
    fn start(directory: &Path) -> io::Result<Self> {
        let mut process = again()?
            .arg("unmount-when-told")
            .arg(directory)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let streams = (process.stdin.take(), process.stdout.take());
        let (Some(tell), Some(hear)) = streams else {
            return Err(io::Error::other("no pipe to the process that unmounts"));
        };
        let hear = BufReader::new(hear);
        Ok(Unmounter { tell, hear })
    }

    fn unmount(&mut self) -> Result<(), String> {
        let mut answer = String::new();
        let told = self.tell.write_all(UNMOUNT);
        let heard = told.and_then(|()| self.hear.read_line(&mut answer));
        heard.map_err(|why| why.to_string())?;
        match answer.trim_end() {
            DONE => Ok(()),
            "" => Err("the process that unmounts has ended".into()),
            why => Err(why.into()),
        }
    }
}

fn held(unmounter: &Mutex<Unmounter>) -> MutexGuard<'_, Unmounter> {
    unmounter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the second process does: unmounts whenever it is told to. It ends with the server, whose end of the pipe it sees.
pub fn unmount_when_told(directory: &Path) -> Outcome {
    // Signals are for the server, which may want to unmount because of them.
    let signals = Signals::new(ENDS).map_err(|why| why.to_string())?;
    let _ = rustix::process::setsid();
    for _ in io::stdin().lines() {
        let answer = match unmount(directory, UnmountFlags::NOFOLLOW) {
            Ok(()) => DONE.to_string(),
            Err(why) => why.to_string(),
        };
        println!("{answer}");
    }
    drop(signals);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyEntry, Request};
    use std::ffi::OsStr;
    use std::time::UNIX_EPOCH;

    /// Answers with how many bytes of the host's file of a name its server can read.
    struct Probe;

    fn attributes(number: u64, size: u64) -> FileAttr {
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if number == 1 {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    impl fuser::Filesystem for Probe {
        fn getattr(
            &self,
            _: &Request,
            number: INodeNo,
            _: Option<fuser::FileHandle>,
            reply: ReplyAttr,
        ) {
            reply.attr(&Duration::ZERO, &attributes(number.0, 0));
        }

        fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
            match std::fs::read(Path::new("/etc").join(name)) {
                Ok(read) => {
                    let found = attributes(2, read.len() as u64);
                    reply.entry(&Duration::ZERO, &found, Generation(0));
                }
                Err(why) => reply.error(Errno::from(why)),
            }
        }
    }

    #[test]
    fn who_answers_the_kernel_can_open_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().to_path_buf();
        let config = MountOptions::default().config(Path::new("probe"), false);
        let (send, ready) = std::sync::mpsc::channel();
        let at = directory.clone();
        let server = std::thread::spawn(move || {
            serve(Probe, &at, &config, None, |_| {
                let thread = std::thread::spawn(|| std::fs::read("/etc/passwd").map(drop));
                send.send(thread.join().unwrap()).unwrap();
                Ok(())
            })
        });
        let from_thread = ready.recv().unwrap();
        let found = std::fs::metadata(directory.join("passwd"));
        // This thread is not confined.
        unmount(&directory, UnmountFlags::DETACH).unwrap();
        server.join().unwrap().unwrap();
        for refused in [from_thread, found.map(drop)] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        std::fs::read("/etc/passwd").unwrap();
    }

    #[test]
    fn of_options_the_last_counts_and_unknown_ones_are_named() {
        let of = |options: &str| {
            let mut found = MountOptions::default();
            options
                .split(',')
                .try_for_each(|option| found.add(option))
                .map(|()| found)
        };
        let fstab = of("defaults,noatime,nofail,nosuid,nodev,_netdev,x-systemd.automount");
        assert_eq!(fstab, Ok(MountOptions::default()));
        assert!(of("ro,rw").is_ok_and(|found| !found.read_only));
        assert!(of("suid,nosuid,dev").is_ok_and(|found| found.dev && !found.suid));
        assert_eq!(of("cold=/srv/cool").unwrap().cold, Some("/srv/cool".into()));
        assert_eq!(
            of("ro,remount"),
            Err("remount: no such option of a mount".into())
        );
    }
}
