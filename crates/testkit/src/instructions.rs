//! A loop of a known number of instructions, for machines whose clock counts them.

/// A loop of two instructions a round.
pub fn spin(rounds: u64) {
    // SAFETY: it counts a register down to zero, and touches nothing else.
    unsafe {
        std::arch::asm!(
            "2:",
            "sub {left}, 1",
            "jnz 2b",
            left = inout(reg) rounds => _,
            options(nomem, nostack)
        );
    }
}
