//! Search for the largest of numbers that exist without a gap, by questions that are asked at once.

/// Returns the largest number for which `exist` says so, or 0 if it does not for 1. It has to hold for all smaller numbers.
///
/// `exist` gets up to `at_once` numbers in ascending order, and answers for each. The smallest numbers and powers of two are asked first, and then
/// the numbers between are divided into `at_once` + 1 parts again and again. Numbers may come to exist meanwhile.
pub(crate) fn largest<E>(
    at_once: usize,
    mut exist: impl FnMut(&[u64]) -> Result<Vec<bool>, E>,
) -> Result<u64, E> {
    let smallest = (at_once as u64 / 2).max(1);
    let mut asked = (1..=smallest)
        .chain(powers(smallest + 1).take(at_once - smallest as usize))
        .collect::<Vec<_>>();
    let (mut found, mut missing) = (0, None);
    while !asked.is_empty() {
        let answers = exist(&asked)?;
        let count = answers.iter().take_while(|exists| **exists).count();
        found = asked[..count].last().copied().unwrap_or(found);
        missing = asked.get(count).copied().or(missing);
        asked = match missing {
            None => powers(found + 1).take(at_once).collect(),
            Some(missing) => between(found, missing, at_once as u64),
        };
    }
    Ok(found)
}

/// Returns the powers of two from `begin` on.
fn powers(begin: u64) -> impl Iterator<Item = u64> {
    (0..u64::BITS).map(|bit| 1 << bit).filter(move |power| *power >= begin)
}

/// Returns up to `count` numbers between two others, at equal distances.
fn between(begin: u64, end: u64, count: u64) -> Vec<u64> {
    let inner = end - begin - 1;
    let count = inner.min(count);
    (1..=count)
        .map(|no| begin + (u128::from(inner + 1) * u128::from(no) / u128::from(count + 1)) as u64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_is_found() {
        for at_once in [1, 2, 3, 32] {
            for last in (0..70).chain([1023, 1024, 1_000_000]) {
                let mut rounds = 0;
                let found = largest(at_once, |numbers| {
                    rounds += 1;
                    assert!((1..=at_once).contains(&numbers.len()) && numbers.is_sorted());
                    Ok::<_, ()>(numbers.iter().map(|number| *number <= last).collect())
                });
                assert_eq!(found, Ok(last), "{at_once} at once");
                let bits = 64 - last.leading_zeros();
                assert!(at_once > 1 || rounds <= 2 * bits + 1, "{last}: {rounds} rounds");
                assert!(at_once < 32 || rounds <= 5, "{last}: {rounds} rounds");
            }
        }
    }

    /// Numbers come to exist while others are asked about, so that one is missing below one that exists.
    #[test]
    fn the_first_that_is_missing_ends_the_search() {
        let found = largest(4, |numbers| {
            Ok::<_, ()>(numbers.iter().map(|number| *number <= 9 && *number != 4).collect())
        });
        assert_eq!(found, Ok(3));
    }

    #[test]
    fn an_error_ends_the_search() {
        let largest_of_all =
            largest(32, |numbers| match numbers.iter().any(|number| *number > 1 << 56) {
                true => Err("too large"),
                false => Ok(vec![true; numbers.len()]),
            });
        assert_eq!(largest_of_all, Err("too large"));
    }
}
