// SPDX-License-Identifier: GPL-2.0-only
//! The drive behind the C ABI of `machine/arch/um/drivers/shingle_drive_abi.h`.
//!
//! Every function trusts its caller as C does: pointers are valid for the lengths given, a drive comes from
//! `shingle_drive_open`, and one call at a time. Numbers are checked; a wrong one is -EINVAL.
#![cfg_attr(feature = "kernel", no_std)]

extern crate alloc;

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

use alloc::boxed::Box;
use core::ffi::{c_char, c_void};
use core::fmt::Write;
use core::slice;
use crash_drive::{states::States, CrashDrive};
use smr_drive::faults::FaultPlan;
use smr_drive::profile::Translation;
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

/// `struct shingle_geometry`.
#[repr(C)]
pub struct ShingleGeometry {
    capacity_sectors: u64,
    logical_block_bytes: u32,
    physical_block_bytes: u32,
    queue_depth: u32,
    max_request_sectors: u32,
    volatile_cache: u32,
    fua: u32,
    discard: u32,
    zoned: u32,
    zone_sectors: u64,
    zones: u32,
    open_max: u32,
    read_restricted: u32,
}

/// `struct shingle_zone`.
#[repr(C)]
pub struct ShingleZone {
    start: u64,
    sectors: u64,
    capacity_sectors: u64,
    write_pointer: u64,
    /// As in the kernel's `enum blk_zone_type`.
    kind: u32,
    /// As in the kernel's `enum blk_zone_cond`.
    condition: u32,
}

/// `struct shingle_completion`.
#[repr(C)]
pub struct ShingleCompletion {
    tag: u64,
    status: i32,
    /// Sense key, additional sense code and qualifier, a byte each from the third; 0 if all is well.
    sense: u32,
}

/// What is behind the handle: the drive of a profile, or the crash explorer's.
// A machine has one, so its size does not matter.
#[allow(clippy::large_enum_variant)]
pub enum AnyDrive {
    /// A disk with mechanics, of a drive file.
    Simulated(Drive),
    /// A disk that can be set to any of many states, of a file of states.
    Crash(CrashDrive<'static>),
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
) -> *mut AnyDrive {
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
            Ok(drive) => return Box::into_raw(Box::new(AnyDrive::Crash(drive))),
            Err(why) => explain(err, &why),
        }
    } else {
        match smr_drive::file::open(file) {
            Ok(opened) => {
                let drive = AnyDrive::Simulated(Drive::new(opened, seed));
                return Box::into_raw(Box::new(drive));
            }
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
    drive: *mut AnyDrive,
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
    let AnyDrive::Simulated(drive) = drive else {
        explain(err, &"a crash drive has no faults");
        return -EINVAL;
    };
    match FaultPlan::from_bytes(plan).and_then(|plan| drive.set_faults(plan)) {
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
    drive: *const AnyDrive,
    geometry: *mut ShingleGeometry,
) {
    // SAFETY: the caller's promise.
    let (drive, geometry) = unsafe { (&*drive, &mut *geometry) };
    let drive = match drive {
        AnyDrive::Simulated(drive) => drive,
        AnyDrive::Crash(drive) => {
            *geometry = crash_geometry(drive);
            return;
        }
    };
    let profile = drive.profile();
    *geometry = ShingleGeometry {
        capacity_sectors: profile.capacity_sectors(),
        logical_block_bytes: profile.logical_block_bytes,
        physical_block_bytes: profile.physical_block_bytes,
        queue_depth: profile.interface.queue_depth,
        max_request_sectors: profile.interface.max_request_sectors,
        volatile_cache: profile.buffer.write_cache.into(),
        fua: profile.buffer.write_cache.into(),
        discard: drive.has_discard().into(),
        zoned: match &profile.translation {
            Translation::HostManaged(_) => 2,
            _ => 0,
        },
        zone_sectors: drive.zone(ZoneId(0)).map_or(0, |zone| zone.size_sectors),
        zones: drive.zones(),
        open_max: profile.open_zones().unwrap_or(0),
        read_restricted: match &profile.translation {
            Translation::HostManaged(zones) => zones.read_restricted.into(),
            _ => 0,
        },
    };
}

fn crash_geometry(drive: &CrashDrive) -> ShingleGeometry {
    let disk = drive.disk();
    ShingleGeometry {
        capacity_sectors: u64::from(disk.blocks) * crash_drive::BLOCK_SECTORS,
        logical_block_bytes: crash_drive::SECTOR_BYTES as u32,
        physical_block_bytes: crash_drive::BLOCK_BYTES as u32,
        queue_depth: crash_drive::QUEUE_DEPTH,
        max_request_sectors: crash_drive::MAX_REQUEST_SECTORS,
        volatile_cache: 1,
        fua: disk.fua.into(),
        discard: 0,
        zoned: 0,
        zone_sectors: 0,
        zones: 0,
        open_max: 0,
        read_restricted: 0,
    }
}

/// Reports zones, from the one numbered `first` on, at most `max`. Returns how many.
///
/// # Safety
/// `drive` is one; `out` is valid for `max` zones.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_zones(
    drive: *const AnyDrive,
    first: u32,
    out: *mut ShingleZone,
    max: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let AnyDrive::Simulated(drive) = (unsafe { &*drive }) else {
        return 0;
    };
    let mut count = 0;
    while count < max {
        let Some(zone) = drive.zone(ZoneId(first.saturating_add(count))) else {
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
    drive: *mut AnyDrive,
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
    match drive {
        AnyDrive::Simulated(drive) => drive.put(tag, offset_bytes as usize, data),
        AnyDrive::Crash(drive) => drive.put(tag, offset_bytes as usize, data),
    }
    .map_or_else(refusal_errno, |()| 0)
}

/// Submits a request.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_submit(
    drive: *mut AnyDrive,
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
        match drive {
            AnyDrive::Simulated(drive) => drive.forget_staged(tag),
            AnyDrive::Crash(drive) => drive.forget_staged(tag),
        }
        return -ENOMEM;
    }
    match drive {
        AnyDrive::Simulated(drive) => drive.submit(now_ns, request),
        AnyDrive::Crash(drive) => drive.submit(now_ns, request),
    }
    .map_or_else(refusal_errno, |()| 0)
}

/// Fetches data: the newest, whether already on the medium or not.
///
/// # Safety
/// `drive` is one; `data` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_get(
    drive: *mut AnyDrive,
    sector: u64,
    data: *mut c_void,
    len: u32,
) -> i32 {
    // SAFETY: the caller's promise.
    let (drive, data) = unsafe { (&mut *drive, bytes_mut(data.cast(), len as usize)) };
    let got = match drive {
        AnyDrive::Simulated(drive) => drive.get(sector, data).is_ok(),
        AnyDrive::Crash(drive) => drive.get(sector, data),
    };
    if got {
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
pub unsafe extern "C" fn shingle_drive_next_event(drive: *const AnyDrive) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { &*drive } {
        AnyDrive::Simulated(drive) => drive.next_event(),
        AnyDrive::Crash(drive) => drive.next_event(),
    }
    .unwrap_or(u64::MAX)
}

/// Lets time pass and collects completions, at most `max`; call again if it returned `max`.
///
/// # Safety
/// `drive` is one; `out` is valid for `max` completions.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_advance(
    drive: *mut AnyDrive,
    now_ns: u64,
    out: *mut ShingleCompletion,
    max: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let drive = unsafe { &mut *drive };
    let mut count = 0;
    let each = |Completion { tag, outcome }| {
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
    match drive {
        AnyDrive::Simulated(drive) => {
            drive.advance(now_ns, max as usize, each);
        }
        AnyDrive::Crash(drive) => drive.advance(now_ns, max as usize, each),
    }
    count as u32
}

/// The counters as JSON, without NUL. Returns their length; if that is more than `len`, `buf` holds nothing of use.
///
/// # Safety
/// `drive` is one; `buf` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_report(
    drive: *mut AnyDrive,
    now_ns: u64,
    buf: *mut c_char,
    len: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (drive, buf) = unsafe { (&mut *drive, bytes_mut(buf.cast(), len as usize)) };
    let mut text = Text { buf, len: 0 };
    let _ = match drive {
        AnyDrive::Simulated(drive) => drive.report(now_ns, &mut text),
        // Nothing is counted, and there is never anything to clean.
        AnyDrive::Crash(_) => write!(text, "{{\"clean\":1}}"),
    };
    text.len as u32
}

/// How long requests took, by class and direction, as JSON without NUL. Returns its length, as above.
///
/// # Safety
/// `drive` is one; `buf` is valid for `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_latencies(
    drive: *const AnyDrive,
    buf: *mut c_char,
    len: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (drive, buf) = unsafe { (&*drive, bytes_mut(buf.cast(), len as usize)) };
    let mut text = Text { buf, len: 0 };
    let _ = match drive {
        AnyDrive::Simulated(drive) => drive.report_latencies(&mut text),
        AnyDrive::Crash(_) => write!(text, "{{}}"),
    };
    text.len as u32
}

/// Tells where a class of data lies: `count` pairs of first sector and number of sectors, in place of what was told
/// before.
///
/// # Safety
/// `drive` is one; `extents` is valid for `2 * count` numbers.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_set_class(
    drive: *mut AnyDrive,
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
    let AnyDrive::Simulated(drive) = (unsafe { &mut *drive }) else {
        return 0;
    };
    let pair = |i: usize| {
        // SAFETY: `i` is below `count`.
        unsafe { (*extents.add(2 * i), *extents.add(2 * i + 1)) }
    };
    let ranges = (0..count as usize)
        .map(pair)
        .filter(|(_, sectors)| *sectors > 0);
    drive.set_class(
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
    drive: *mut AnyDrive,
    now_ns: u64,
    text: *const c_char,
    len: u32,
) {
    // SAFETY: the caller's promise.
    let (drive, text) = unsafe { (&mut *drive, bytes(text.cast(), len as usize)) };
    match drive {
        AnyDrive::Simulated(drive) => drive.mark(now_ns, text),
        AnyDrive::Crash(drive) => drive.mark(text),
    }
}

/// Sets a crash drive to a state of its file. 0; -EINVAL if it has no such state, requests are under way, or the drive is
/// none.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_set_state(drive: *mut AnyDrive, state: u32) -> i32 {
    // SAFETY: the caller's promise.
    let set = match unsafe { &mut *drive } {
        AnyDrive::Simulated(_) => false,
        AnyDrive::Crash(drive) => drive.set_state(state),
    };
    if set {
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
    drive: *mut AnyDrive,
    buf: *mut c_void,
    len: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (drive, buf) = unsafe { (&mut *drive, bytes_mut(buf.cast(), len as usize)) };
    match drive {
        AnyDrive::Simulated(drive) => drive.trace_take(buf) as u32,
        AnyDrive::Crash(drive) => drive.record_take(buf) as u32,
    }
}

/// Power fails: what was not durable is gone, and with it every request.
///
/// # Safety
/// `drive` is one.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_power_cut(drive: *mut AnyDrive, now_ns: u64) {
    // SAFETY: the caller's promise.
    if let AnyDrive::Simulated(drive) = unsafe { &mut *drive } {
        drive.power_cut(now_ns);
    }
}

/// Writes the drive file, as a power cut now would leave it, piece by piece and in order. Stops at the first status of
/// `write` that is not 0, and returns it.
///
/// # Safety
/// `drive` is one; `write` may be called with `ctx`.
#[no_mangle]
pub unsafe extern "C" fn shingle_drive_save(
    drive: *mut AnyDrive,
    write: extern "C" fn(*mut c_void, *const c_void, u64) -> i32,
    ctx: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    let AnyDrive::Simulated(drive) = (unsafe { &mut *drive }) else {
        return -EOPNOTSUPP;
    };
    let result = drive.save(
        |piece| match write(ctx, piece.as_ptr().cast(), piece.len() as u64) {
            0 => Ok(()),
            status => Err(status),
        },
    );
    match result {
        Ok(()) => 0,
        Err(status) => status,
    }
}
