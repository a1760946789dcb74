// SPDX-License-Identifier: GPL-2.0-only
//! Memory for the drives inside the machine, one heap for all: chunks from the host, cut into blocks of a few sizes,
//! with a free list for each size. It has no lock: the block driver has one around every call into any drive.
//!
//! Sizes are 1, 1¼, 1½ and 1¾ times a power of two, so at most a fifth is wasted, and a freed block fits the next one
//! of its size. Nothing goes back to the host. The lists live in the free blocks themselves.
//!
//! When the host has no more, the heap says so for good ([`Heap::exhausted`]) and lives on a reserve taken at the start,
//! large enough for the operation in hand and for those that free memory. The caller ends every later write with
//! -ENOMEM.

use core::alloc::Layout;
use core::ptr::null_mut;

/// A free block. The smallest size holds one.
struct Free {
    next: *mut Free,
}

const MIN_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
/// Four sizes for each power of two from 16 bytes to 64 GiB.
const SIZES: usize = 4 * 33;
const CHUNK_BYTES: usize = 4 << 20;
const RESERVE_BYTES: usize = 16 << 20;

/// Source of chunks: page-aligned memory of at least so many bytes, or null.
pub type AllocChunk = fn(u64) -> *mut u8;

/// See the module's head.
pub struct Heap {
    alloc_chunk: AllocChunk,
    free: [*mut Free; SIZES],
    chunk: *mut u8,
    chunk_left: usize,
    reserve: *mut u8,
    reserve_left: usize,
    exhausted: bool,
}

/// Number of the smallest size that holds `bytes`, and that size.
fn size_class(bytes: usize) -> (usize, usize) {
    let bytes = bytes.max(MIN_BYTES);
    let power = bytes.ilog2();
    let quarter = (1 << power) / 4;
    let quarters = (bytes - (1 << power)).div_ceil(quarter);
    let class = (power as usize - 4) * 4 + quarters;
    (class, (1 << power) + quarters * quarter)
}

/// The bytes that a layout takes: a block's alignment is that of its size, at least 16 for multiples of 16.
fn bytes_for(layout: Layout) -> usize {
    // Sizes up to 64 are not all multiples of 16, and larger alignments need a power of two: round up to one.
    let bytes = layout.size().max(layout.align());
    if bytes <= 64 || layout.align() > 16 {
        bytes.next_power_of_two().max(MIN_BYTES)
    } else {
        bytes
    }
}

impl Heap {
    /// Takes nothing yet.
    pub const fn new(alloc_chunk: AllocChunk) -> Self {
        Heap {
            alloc_chunk,
            free: [null_mut(); SIZES],
            chunk: null_mut(),
            chunk_left: 0,
            reserve: null_mut(),
            reserve_left: 0,
            exhausted: false,
        }
    }

    /// Whether the host had no more memory at some time.
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Puts the reserve aside. False if the host has not even that.
    pub fn take_reserve(&mut self) -> bool {
        if self.reserve.is_null() {
            self.reserve = (self.alloc_chunk)(RESERVE_BYTES as u64);
            self.reserve_left = if self.reserve.is_null() {
                0
            } else {
                RESERVE_BYTES
            };
        }
        !self.reserve.is_null()
    }

    /// Memory for a value of this layout; null if there is none.
    ///
    /// # Safety
    /// As `GlobalAlloc::alloc`, and no other thread may use the heap meanwhile.
    pub unsafe fn alloc(&mut self, layout: Layout) -> *mut u8 {
        let (class, bytes) = size_class(bytes_for(layout));
        let head = self.free[class];
        if !head.is_null() {
            // SAFETY: blocks in the list were given back by `dealloc`, which wrote a `Free` there.
            self.free[class] = unsafe { (*head).next };
            return head.cast();
        }
        self.carve(bytes, layout.align())
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// As `GlobalAlloc::dealloc`, and no other thread may use the heap meanwhile.
    pub unsafe fn dealloc(&mut self, block: *mut u8, layout: Layout) {
        let (class, _) = size_class(bytes_for(layout));
        let free: *mut Free = block.cast();
        // SAFETY: every block has at least 16 bytes, is aligned to 16, and is no longer in use.
        unsafe { (*free).next = self.free[class] };
        self.free[class] = free;
    }

    /// Cuts a new block off the present chunk, a new chunk, or the reserve.
    fn carve(&mut self, bytes: usize, align: usize) -> *mut u8 {
        if bytes >= CHUNK_BYTES / 4 {
            let block = (self.alloc_chunk)(bytes.next_multiple_of(PAGE_BYTES) as u64);
            if !block.is_null() {
                return block;
            }
        } else {
            if let Some(block) = cut(&mut self.chunk, &mut self.chunk_left, bytes, align) {
                return block;
            }
            let chunk = (self.alloc_chunk)(CHUNK_BYTES as u64);
            if !chunk.is_null() {
                (self.chunk, self.chunk_left) = (chunk, CHUNK_BYTES);
                return cut(&mut self.chunk, &mut self.chunk_left, bytes, align)
                    .unwrap_or(null_mut());
            }
        }
        self.exhausted = true;
        cut(&mut self.reserve, &mut self.reserve_left, bytes, align).unwrap_or(null_mut())
    }
}

/// Cuts `bytes` off the front of a region, aligned to 16 and to `align`.
fn cut(start: &mut *mut u8, left: &mut usize, bytes: usize, align: usize) -> Option<*mut u8> {
    let skip = start.align_offset(align.max(MIN_BYTES));
    if start.is_null() || skip.checked_add(bytes)? > *left {
        return None;
    }
    let block = start.wrapping_add(skip);
    *start = block.wrapping_add(bytes);
    *left -= skip + bytes;
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plenty(bytes: u64) -> *mut u8 {
        let layout = Layout::from_size_align(bytes as usize, PAGE_BYTES).unwrap();
        // SAFETY: the layout is not empty.
        unsafe { std::alloc::alloc_zeroed(layout) }
    }

    fn nothing(_: u64) -> *mut u8 {
        null_mut()
    }

    #[test]
    fn a_size_holds_what_was_asked_for_and_wastes_little() {
        let mut last = 0;
        for bytes in 1..100_000 {
            let (class, size) = size_class(bytes);
            assert!(
                size >= bytes && (bytes < 64 || size * 4 <= bytes * 5),
                "{bytes} in {size}"
            );
            assert!(class >= last && class < SIZES);
            last = class;
        }
    }

    #[test]
    fn blocks_are_aligned_and_apart_and_used_again() {
        let mut heap = Heap::new(plenty);
        let mut blocks: Vec<(usize, Layout)> = Vec::new();
        for i in 1..2000usize {
            let align = 1 << (i % 13);
            let layout = Layout::from_size_align(i * 7 % 5000 + 1, align).unwrap();
            // SAFETY: single thread, the layout is not empty.
            let block = unsafe { heap.alloc(layout) } as usize;
            assert_eq!(block % align, 0, "{layout:?}");
            blocks.push((block, layout));
        }
        blocks.sort_by_key(|(at, _)| *at);
        assert!(blocks.windows(2).all(|w| w[0].0 + w[0].1.size() <= w[1].0));
        let (at, layout) = blocks[100];
        // SAFETY: allocated above with this layout.
        unsafe { heap.dealloc(at as *mut u8, layout) };
        assert_eq!(unsafe { heap.alloc(layout) } as usize, at);
    }

    #[test]
    fn without_memory_the_reserve_serves_and_the_latch_holds() {
        let mut heap = Heap::new(plenty);
        assert!(heap.take_reserve());
        heap.alloc_chunk = nothing;
        let layout = Layout::from_size_align(1 << 20, 8).unwrap();
        // SAFETY: single thread.
        assert!(unsafe { !heap.alloc(layout).is_null() });
        assert!(heap.exhausted());
        let count = (0..100)
            .filter(|_| unsafe { !heap.alloc(layout).is_null() })
            .count();
        assert_eq!(count, 15, "the reserve ends");
    }
}
