// SPDX-License-Identifier: GPL-2.0-only
//! The drive behind the C ABI of `machine/arch/um/drivers/shingle_drive_abi.h`.
//!
//! Every function trusts its caller as C does: pointers are valid for the lengths given, a drive comes from
//! `shingle_drive_open`, and one call at a time. Numbers are checked; a wrong one is -EINVAL.
#![cfg_attr(feature = "kernel", no_std)]

extern crate alloc;

mod any_drive;
#[cfg(any(feature = "kernel", test))]
mod heap;
#[cfg(feature = "kernel")]
mod kernel;
#[cfg(not(feature = "kernel"))]
mod kernel {
    //! With std, the host's allocator serves.
    pub fn take_reserve() -> bool {
        true
    }
    pub fn out_of_memory() -> bool {
        false
    }
}
mod layout;

use alloc::boxed::Box;
use any_drive::AnyDrive;
use core::ffi::{c_char, c_void};
use core::fmt::Write;
use core::slice;
use crash_drive::{states::States, CrashDrive};
pub use layout::{ShingleCompletion, ShingleGeometry, ShingleZone};
use smr_drive::request::{Class, Completion, Op, Outcome, Refusal, Request};
use smr_drive::Drive;
use zoned::{BlockRange, Lba, ZoneError, ZoneId, ZoneState, ZoneType};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;
const ETOOMANYREFS: i32 = 109;
const ETIMEDOUT: i32 = 110;

/// What C has a pointer to.
pub struct Handle(Box<dyn AnyDrive>);

fn handle(drive: impl AnyDrive + 'static) -> *mut Handle {
    Box::into_raw(Box::new(Handle(Box::new(drive))))
}

/// Text into a buffer of the caller's. Counts what does not fit, too.
struct Text<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        if let Some(to) = self.buf.get_mut(self.len..self.len + s.len()) {
            to.copy_from_slice(s.as_bytes());
        }
        self.len += s.len();
        Ok(())
    }
}

/// A slice of the caller's; a null pointer is an empty one.
///
/// # Safety
/// `data` is null or valid for `len` bytes for as long as the slice is used.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if data.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(data, len) }
    }
}

/// The same, to write to.
///
/// # Safety
/// As [`bytes`], and nobody else uses the memory meanwhile.
unsafe fn bytes_mut<'a>(data: *mut u8, len: usize) -> &'a mut [u8] {
    if data.is_null() {
        &mut []
    } else {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(data, len) }
    }
}

fn refusal_errno(refusal: Refusal) -> i32 {
    -match refusal {
        Refusal::QueueFull => EBUSY,
        Refusal::Invalid => EINVAL,
        Refusal::Unsupported => EOPNOTSUPP,
    }
}

/// Switches on the drive of a file. Null, and a sentence that ends with NUL in `err`, if that cannot be.
///
/// # Safety
/// `file` stays mapped until the process ends. `err` is valid for `err_len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_open(
    file: *const c_void,
    len: u64,
    seed: u64,
    err: *mut c_char,
    err_len: u32,
) -> *mut Handle {
    // SAFETY: the caller's promise.
    let (file, err) = unsafe {
        (
            bytes(file.cast(), len as usize),
            bytes_mut(err.cast(), err_len as usize),
        )
    };
    if !kernel::take_reserve() {
        explain(err, &smr_drive::file::FileError::NoMemory);
    } else if States::is_one(file) {
        match CrashDrive::open(file, seed) {
            Ok(drive) => return handle(drive),
            Err(why) => explain(err, &why),
        }
    } else {
        match smr_drive::file::open(file) {
            Ok(opened) => return handle(Drive::new(opened, seed)),
            Err(why) => explain(err, &why),
        }
    }
    core::ptr::null_mut()
}

/// Why something was refused, with a NUL at its end.
fn explain(err: &mut [u8], why: &dyn core::fmt::Display) {
    let room = err.len().saturating_sub(1);
    let mut text = Text {
        buf: &mut err[..room],
        len: 0,
    };
    let _ = write!(text, "{why}");
    let end = text.len.min(room);
    if let Some(nul) = err.get_mut(end) {
        *nul = 0;
    }
}

/// From now on things go wrong as the plan says that `shingle-drive faults check` wrote. 0, or -EINVAL and a sentence that
/// ends with NUL in `err`; then nothing was changed.
///
/// # Safety
/// `drive` is one; `plan` is valid for `len` bytes, `err` for `err_len`.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_set_faults(
    drive: *mut Handle,
    plan: *const c_void,
    len: u64,
    err: *mut c_char,
    err_len: u32,
) -> i32 {
    // SAFETY: the caller's promise.
    let (drive, plan, err) = unsafe {
        (
            &mut *drive,
            bytes(plan.cast(), len as usize),
            bytes_mut(err.cast(), err_len as usize),
        )
    };
    match drive.0.set_faults(plan) {
        Ok(()) => 0,
        Err(why) => {
            explain(err, &why);
            -EINVAL
        }
    }
}

/// What the host must know of the drive.
///
/// # Safety
/// Both pointers are valid.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_geometry(
    drive: *const Handle,
    geometry: *mut ShingleGeometry,
) {
    // SAFETY: the caller's promise.
    let (drive, geometry) = unsafe { (&*drive, &mut *geometry) };
    *geometry = drive.0.geometry();
}

/// Reports zones, from the one numbered `first` on, at most `max`. Returns how many.
///
/// # Safety
/// `drive` is one; `out` is valid for `max` zones.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_zones(
    drive: *const Handle,
    first: u32,
    out: *mut ShingleZone,
    max: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &*drive };
    let mut count = 0;
    while count < max {
        let Some(zone) = drive.0.zone(ZoneId(first.saturating_add(count))) else {
            break;
        };
        let report = ShingleZone {
            start: zone.start.0,
            sectors: zone.size_sectors,
            capacity_sectors: zone.capacity_sectors,
            write_pointer: zone.write_pointer.0,
            kind: match zone.zone_type {
                ZoneType::Conventional => 1,
                ZoneType::SeqRequired => 2,
                ZoneType::SeqPreferred => 3,
            },
            condition: match zone.state {
                ZoneState::NotWritePointer => 0,
                ZoneState::Empty => 1,
                ZoneState::ImplicitOpen => 2,
                ZoneState::ExplicitOpen => 3,
                ZoneState::Closed => 4,
                ZoneState::ReadOnly => 13,
                ZoneState::Full => 14,
                ZoneState::Offline => 15,
            },
        };
        // SAFETY: `count` is below `max`.
        unsafe { out.add(count as usize).write(report) };
        count += 1;
    }
    count
}

/// Hands over a piece of the data of the write that will be submitted under `tag`.
///
/// # Safety
/// `drive` is one; `data` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_put(
    drive: *mut Handle,
    tag: u64,
    offset_bytes: u32,
    data: *const c_void,
    len: u32,
) -> i32 {
    if kernel::out_of_memory() {
        return -ENOMEM;
    }
    // SAFETY: the caller's promise.
    let (drive, data) = unsafe { (&mut *drive, bytes(data.cast(), len as usize)) };
    let put = drive.0.put(tag, offset_bytes as usize, data);
    put.map_or_else(refusal_errno, |()| 0)
}

/// Submits a request.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_submit(
    drive: *mut Handle,
    now_ns: u64,
    tag: u64,
    op: u32,
    flags: u32,
    sector: u64,
    sectors: u32,
) -> i32 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &mut *drive };
    let Some(op) = Op::from_number(op) else {
        return -EINVAL;
    };
    let request = Request {
        tag,
        op,
        flags,
        lba: Lba(sector),
        sectors,
    };
    if request.writes() && kernel::out_of_memory() {
        drive.0.forget_staged(tag);
        return -ENOMEM;
    }
    let submitted = drive.0.submit(now_ns, request);
    submitted.map_or_else(refusal_errno, |()| 0)
}

/// Fetches data: the newest, whether already on the medium or not.
///
/// # Safety
/// `drive` is one; `data` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_get(
    drive: *mut Handle,
    sector: u64,
    data: *mut c_void,
    len: u32,
) -> i32 {
    // SAFETY: the caller's promise.
    let (drive, data) = unsafe { (&mut *drive, bytes_mut(data.cast(), len as usize)) };
    if drive.0.get(sector, data) {
        0
    } else {
        -EIO
    }
}

/// When to call `shingle_drive_advance` next, whatever the host does until then; U64_MAX: no need to.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_next_event(drive: *const Handle) -> u64 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &*drive };
    drive.0.next_event().unwrap_or(u64::MAX)
}

/// Lets time pass and collects completions, at most `max`; call again if it returned `max`.
///
/// # Safety
/// `drive` is one; `out` is valid for `max` completions.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_advance(
    drive: *mut Handle,
    now_ns: u64,
    out: *mut ShingleCompletion,
    max: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &mut *drive };
    let mut count = 0;
    let mut each = |Completion { tag, outcome }| {
        let status = match outcome {
            Outcome::Done => 0,
            Outcome::Zone(ZoneError::Resources) => -ETOOMANYREFS,
            // As the kernel does with what disks say: only a read of a bad place is a medium error.
            Outcome::ReadFailed => -ENODATA,
            Outcome::Aborted => -ETIMEDOUT,
            Outcome::Damaged | Outcome::WriteFailed | Outcome::Zone(_) => -EIO,
        };
        let sense = outcome.sense().map_or(0, |s| {
            u32::from(s.key) << 16 | u32::from(s.asc) << 8 | u32::from(s.ascq)
        });
        // SAFETY: the drive hands over at most `max` completions.
        unsafe {
            out.add(count)
                .write(ShingleCompletion { tag, status, sense })
        };
        count += 1;
    };
    drive.0.advance(now_ns, max as usize, &mut each);
    count as u32
}

/// The counters as JSON, without NUL. Returns their length; if that is more than `len`, `buf` holds nothing of use.
///
/// # Safety
/// `drive` is one; `buf` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_report(
    drive: *mut Handle,
    now_ns: u64,
    buf: *mut c_char,
    len: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (drive, buf) = unsafe { (&mut *drive, bytes_mut(buf.cast(), len as usize)) };
    let mut text = Text { buf, len: 0 };
    let _ = drive.0.report(now_ns, &mut text);
    text.len as u32
}

/// How long requests took, by class and direction, as JSON without NUL. Returns its length, as above.
///
/// # Safety
/// `drive` is one; `buf` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_latencies(
    drive: *const Handle,
    buf: *mut c_char,
    len: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (drive, buf) = unsafe { (&*drive, bytes_mut(buf.cast(), len as usize)) };
    let mut text = Text { buf, len: 0 };
    let _ = drive.0.report_latencies(&mut text);
    text.len as u32
}

/// Tells where a class of data lies: `count` pairs of first sector and number of sectors, in place of what was told
/// before.
///
/// # Safety
/// `drive` is one; `extents` is valid for `2 * count` numbers.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_set_class(
    drive: *mut Handle,
    class: u32,
    extents: *const u64,
    count: u32,
) -> i32 {
    let class = match class {
        1 => Class::Journal,
        2 => Class::Superblock,
        _ => return -EINVAL,
    };
    // SAFETY: the caller's promise.
    let drive = unsafe { &mut *drive };
    let pair = |i: usize| {
        // SAFETY: `i` is below `count`.
        unsafe { (*extents.add(2 * i), *extents.add(2 * i + 1)) }
    };
    let ranges = (0..count as usize)
        .map(pair)
        .filter(|(_, sectors)| *sectors > 0);
    drive.0.set_class(
        class,
        ranges
            .map(|(first, sectors)| BlockRange::covering(Lba(first), sectors))
            .collect(),
    );
    0
}

/// Writes a marker into the trace.
///
/// # Safety
/// `drive` is one; `text` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_mark(
    drive: *mut Handle,
    now_ns: u64,
    text: *const c_char,
    len: u32,
) {
    // SAFETY: the caller's promise.
    let (drive, text) = unsafe { (&mut *drive, bytes(text.cast(), len as usize)) };
    drive.0.mark(now_ns, text);
}

/// Sets a crash drive to a state of its file. 0; -EINVAL if it has no such state, requests are under way, or the drive is
/// none.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_set_state(drive: *mut Handle, state: u32) -> i32 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &mut *drive };
    if drive.0.set_state(state) {
        0
    } else {
        -EINVAL
    }
}

/// Takes finished bytes of the trace; of a crash drive, of its record. The drive keeps a trace from the first call on (a length of 0 will do); take it
/// at least every 10,000 requests, or the newest records are lost and counted.
///
/// # Safety
/// `drive` is one; `buf` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_trace_take(
    drive: *mut Handle,
    buf: *mut c_void,
    len: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (drive, buf) = unsafe { (&mut *drive, bytes_mut(buf.cast(), len as usize)) };
    drive.0.trace_take(buf) as u32
}

/// The link is reset: the drive forgets every request, and keeps what is in its buffer. 0, or -EOPNOTSUPP of
/// a crash drive and of one with zones.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_reset(drive: *mut Handle, now_ns: u64) -> i32 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &mut *drive };
    match drive.0.reset(now_ns) {
        true => 0,
        false => -EOPNOTSUPP,
    }
}

/// Power fails: what was not durable is gone, and with it every request.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_power_cut(drive: *mut Handle, now_ns: u64) {
    // SAFETY: the caller's promise.
    let drive = unsafe { &mut *drive };
    drive.0.power_cut(now_ns);
}

/// Writes the drive file, as a power cut now would leave it, piece by piece and in order. Stops at the first status of
/// `write` that is not 0, and returns it.
///
/// # Safety
/// `drive` is one; `write` may be called with `ctx`.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_save(
    drive: *mut Handle,
    write: extern "C" fn(*mut c_void, *const c_void, u64) -> i32,
    ctx: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &*drive };
    let mut piece = |piece: &[u8]| write(ctx, piece.as_ptr().cast(), piece.len() as u64);
    drive.0.save(&mut piece)
}
