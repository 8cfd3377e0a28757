//! Division by a number that is nearly always a power of two.
//!
//! A shift replaces the division where possible, because the model divides several times for each page.

/// Divisor with the precomputed choice between shift and division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    number: u32,
    /// Equivalent right shift, if the number is a power of two.
    shift: Option<u32>,
}

impl Divisor {
    /// Makes the divisor `number`.
    ///
    /// # Panics
    ///
    /// If `number` is zero.
    pub(crate) fn new(number: u32) -> Divisor {
        assert_ne!(number, 0);
        Divisor { number, shift: number.is_power_of_two().then(|| number.ilog2()) }
    }

    pub(crate) fn number(self) -> u32 {
        self.number
    }

    pub(crate) fn quotient(self, dividend: u32) -> u32 {
        match self.shift {
            Some(shift) => dividend >> shift,
            None => dividend / self.number,
        }
    }

    pub(crate) fn remainder(self, dividend: u32) -> u32 {
        match self.shift {
            Some(_) => dividend & (self.number - 1),
            None => dividend % self.number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotient_and_remainder_agree_with_the_operators() {
        for number in [1, 2, 3, 10, 64, 1000, 1 << 31, u32::MAX] {
            let divisor = Divisor::new(number);
            for dividend in [0, 1, 2, 63, 64, 65, 999, 1001, 1 << 31, u32::MAX] {
                assert_eq!(divisor.quotient(dividend), dividend / number);
                assert_eq!(divisor.remainder(dividend), dividend % number);
            }
        }
    }
}
