//! The price of a volume in an object store, by the prices that the user gives.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes in the unit of prices.
const GB: f64 = 1e9;

/// Prices of an object store, in any currency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorePrices {
    /// Of 1,000 requests that store an object.
    puts: f64,
    /// Of 1,000 requests that read one.
    gets: f64,
    /// Of 1,000 requests that delete one.
    deletes: f64,
    /// Of 10^9 bytes in the store, a month.
    month: f64,
    /// Of 10^9 bytes that are received.
    received: f64,
}

impl FromStr for StorePrices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let price = |word: &str| {
            let price = word.parse::<f64>().ok();
            price.filter(|price| (0.0..1e6).contains(price))
        };
        let prices = text.split(':').map(price).collect::<Option<Vec<_>>>().unwrap_or_default();
        match prices[..] {
            [puts, gets, deletes, month, received] => {
                Ok(Self { puts, gets, deletes, month, received })
            }
            _ => {
                Err("give five prices with ':' between them: of 1000 PUT, 1000 GET, 1000 DELETE, \
                      a GB stored for a month, and a GB received"
                    .into())
            }
        }
    }
}

/// Costs of a volume, in millionths of the currency of the prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePrice {
    /// Requests since the mount.
    pub requests_micros: u64,
    /// Bytes that were received since the mount.
    pub received_micros: u64,
    /// Of the bytes that are stored now, for a month.
    pub month_micros: u64,
}

/// Use of a store, which has a price.
pub(super) struct StoreUse {
    pub(super) puts: u64,
    pub(super) gets: u64,
    pub(super) deletes: u64,
    pub(super) bytes_down: u64,
    pub(super) stored_bytes: u64,
}

impl StorePrices {
    /// Returns the price of a use.
    pub(super) fn of(&self, used: &StoreUse) -> StorePrice {
        let micros = |price: f64| (price * 1e6).round() as u64;
        let thousand = |count: u64| count as f64 / 1e3;
        let requests = thousand(used.puts) * self.puts
            + thousand(used.gets) * self.gets
            + thousand(used.deletes) * self.deletes;
        StorePrice {
            requests_micros: micros(requests),
            received_micros: micros(used.bytes_down as f64 / GB * self.received),
            month_micros: micros(used.stored_bytes as f64 / GB * self.month),
        }
    }
}

/// An amount in millionths, with four digits behind the point.
pub(super) struct Amount(pub(super) u64);

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.4}", self.0 as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_prices_are_needed() {
        let prices: StorePrices = "0.005:0.0004:0:0.023:0.09".parse().expect("five prices");
        assert_eq!((prices.puts, prices.gets, prices.deletes), (0.005, 0.0004, 0.0));
        assert_eq!((prices.month, prices.received), (0.023, 0.09));
        for wrong in ["", "1:2:3:4", "1:2:3:4:5:6", "1:2:3:4:x", "1:2:3:4:-5", "1:2:3:4:nan"] {
            let refusal = wrong.parse::<StorePrices>().expect_err("no five prices");
            assert!(refusal.starts_with("give five prices"), "{wrong}: {refusal}");
        }
    }
}
