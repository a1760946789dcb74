// SPDX-License-Identifier: GPL-2.0-only
//! What std would give: an allocator and the end of a panic.

use crate::heap::Heap;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::fmt::Write;
use core::panic::PanicInfo;

extern "C" {
    fn shingle_host_alloc_chunk(bytes: u64) -> *mut u8;
    fn shingle_host_panic(message: *const u8, len: u32);
}

fn host_chunk(bytes: u64) -> *mut u8 {
    // SAFETY: the machine's function; it takes any size and returns page-aligned memory or null.
    unsafe { shingle_host_alloc_chunk(bytes) }
}

struct Allocator(UnsafeCell<Heap>);

// SAFETY: the block driver calls all its drives under one spinlock, on one CPU.
unsafe impl Sync for Allocator {}

// SAFETY: `Heap` keeps GlobalAlloc's promises; see there.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no second reference exists while a call lasts (see Sync above).
        unsafe { (*self.0.get()).alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { (*self.0.get()).dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator(UnsafeCell::new(Heap::new(host_chunk)));

/// Puts the reserve aside; false if there is no memory at all.
pub fn take_reserve() -> bool {
    // SAFETY: as above.
    unsafe { (*ALLOCATOR.0.get()).take_reserve() }
}

/// Whether the host's memory for the drive has run out.
pub fn out_of_memory() -> bool {
    // SAFETY: as above.
    unsafe { (*ALLOCATOR.0.get()).exhausted() }
}

/// A message in a buffer that is neither on the kernel's small stack nor on the heap.
struct Message {
    text: [u8; 512],
    len: usize,
}

struct MessageCell(UnsafeCell<Message>);

// SAFETY: written by a panic only, and after it nothing runs.
unsafe impl Sync for MessageCell {}

static MESSAGE: MessageCell = MessageCell(UnsafeCell::new(Message {
    text: [0; 512],
    len: 0,
}));

impl Write for Message {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let n = s.len().min(self.text.len() - self.len);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    // SAFETY: nothing else uses the buffer; see MessageCell.
    let message = unsafe { &mut *MESSAGE.0.get() };
    let _ = write!(message, "{info}");
    // SAFETY: the machine's function reads so many bytes and does not come back.
    unsafe { shingle_host_panic(message.text.as_ptr(), message.len as u32) };
    loop {
        core::hint::spin_loop();
    }
}

/// The toolchain's `alloc` was built for programs that unwind, and mentions these two. Here a panic does not return, so
/// neither is ever called.
#[no_mangle]
extern "C" fn rust_eh_personality() {}

#[no_mangle]
extern "C" fn _Unwind_Resume() -> ! {
    panic!("unwinding inside the machine")
}
