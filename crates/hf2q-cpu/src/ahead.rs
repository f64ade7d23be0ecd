//! What threads read first after a meeting: weights are known before the meeting is over.

/// Bytes that memory moves at a time.
const LINE: usize = 64;

/// Most bytes to ask for: more than the way to memory holds at a time only delays who asks.
const MOST: usize = 8 << 10;

/// Asks for the first lines of some memory, so that they are on their way while the thread waits. A hint without an
/// effect on any result; where no such instruction is known, nothing.
pub(crate) fn ask_for(bytes: &[u8]) {
    let end = bytes.len().min(MOST);
    for line in bytes[..end].chunks(LINE) {
        prefetch(line.as_ptr());
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "an intrinsic")]
fn prefetch(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every processor of this architecture has the instruction, which faults at no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_at: *const u8) {}
