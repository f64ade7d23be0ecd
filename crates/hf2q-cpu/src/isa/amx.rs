//! Whether this process may use the matrix tiles of AMX.
//!
//! Three have to agree: the processor (leaf 7 of CPUID), the system, which must save tiles when threads change (XCR0),
//! and the system once more, which wants to be asked before it gives a process the memory for that.

#![expect(
    unsafe_code,
    reason = "instructions and a system call that the standard library has no functions for"
)]

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// Bits 24 and 25 of EDX in leaf 7: tiles, and products of bytes.
const TILE_AND_INT8: u32 = 0b11 << 24;

/// Bit 27 of ECX in leaf 1: XCR0 may be read.
const OSXSAVE: u32 = 1 << 27;

/// Bits of XCR0: the configuration and the contents of tiles.
const TILE_STATE: u64 = 0b11 << 17;

/// Asks once; the answer holds for all threads.
pub(super) fn permitted() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| processor_has_tiles() && system_saves_tiles() && ask())
}

fn processor_has_tiles() -> bool {
    let most = __cpuid(0).eax;
    most >= 7 && __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8
}

fn system_saves_tiles() -> bool {
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE says that the instruction may be used; it reads a register.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack)) };
    (u64::from(high) << 32 | u64::from(low)) & TILE_STATE == TILE_STATE
}

/// Linux gives tiles to processes that ask. An older kernel does not know the request, and refuses it.
#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_PRCTL: u64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let answer: i64;
    // SAFETY: the request takes two numbers, touches no memory of ours, and changes nothing but what is permitted.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    answer == 0
}

/// Other systems are not known to give them.
#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}
