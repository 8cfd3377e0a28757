//! Search for the largest of numbers that exist without a gap.

/// Returns the largest number for which `exists` holds, or 0 if it does not hold for 1. It has to hold for all smaller numbers.
///
/// Asks about twice as many times as the number has bits.
pub(crate) fn largest<E>(mut exists: impl FnMut(u64) -> Result<bool, E>) -> Result<u64, E> {
    let (mut found, mut missing) = (0, 1);
    while exists(missing)? {
        (found, missing) = (missing, missing * 2);
    }
    while missing - found > 1 {
        let middle = found + (missing - found) / 2;
        if exists(middle)? {
            found = middle;
        } else {
            missing = middle;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_is_found() {
        for last in (0..70).chain([1023, 1024, 1_000_000]) {
            let mut asked = 0;
            let found = largest(|number| {
                asked += 1;
                Ok::<_, ()>(number <= last)
            });
            assert_eq!(found, Ok(last));
            assert!(asked <= 2 * (64 - last.leading_zeros()) + 1, "{last}: {asked}");
        }
    }
}
