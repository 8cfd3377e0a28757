//! Capabilities of this thread, and of those that it starts.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Number of bits of a set; the kernel knows the lower ones.
const BITS: u32 = 64;

/// Drops all capabilities but `kept` for good, and for programs that it might run all. A capability of `kept` that the thread lacks
/// stays missing.
pub(crate) fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // EINVAL: the kernel has no more of them. EPERM: an ordinary user, whose programs cannot gain any with no_new_privs.
            Err(Errno::INVAL | Errno::PERM) => break,
            outcome => outcome?,
        }
    }
    keep_only_here(kept)
}

/// Drops all capabilities of this thread but `kept`. Programs that it runs as root get those of the bounding set.
pub(crate) fn keep_only_here(kept: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let kept = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?)
}
