//! Limits of the program: it gives up capabilities of root that no store needs, new privileges, and dumps of its memory, which has
//! credentials.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Number of bits of a set of capabilities; the kernel knows the lower ones.
const BITS: u32 = 64;

/// Limits this thread, and those that it starts. A limit that cannot be had is left out: an ordinary user has nothing to give up.
pub(crate) fn enter(url: &str) {
    // Objects have the content of files, whoever may read those.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_no_new_privs(true);
    // Files with credentials, and a directory of objects, may belong to another user than root.
    let kept = match url.starts_with("file:") {
        true => CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE,
        false => CapabilitySet::DAC_READ_SEARCH,
    };
    for number in 0..BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    let _ = clear_ambient_capability_set();
    if let Ok(sets) = capabilities(None) {
        let kept = sets.permitted & kept;
        let inheritable = CapabilitySet::empty();
        let _ = set_capabilities(
            None,
            CapabilitySets { effective: kept, permitted: kept, inheritable },
        );
    }
}
