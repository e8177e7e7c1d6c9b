//! Numbers of causes, rounded to the decimals with which they are shown: causes that show the same numbers are equal, and JSON
//! keeps them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// A number with this many decimals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Decimal<const PLACES: usize>(f64);

impl<const PLACES: usize> Decimal<PLACES> {
    pub(crate) const fn value(self) -> f64 {
        self.0
    }
}

impl<const PLACES: usize> From<f64> for Decimal<PLACES> {
    fn from(number: f64) -> Self {
        Self(format!("{number:.PLACES$}").parse().ok().filter(|n: &f64| !n.is_nan()).unwrap_or(f64::INFINITY))
    }
}

/// No number is NaN.
impl<const PLACES: usize> Eq for Decimal<PLACES> {}

/// JSON has no infinity: it is null.
impl<'de, const PLACES: usize> Deserialize<'de> for Decimal<PLACES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY)))
    }
}

impl<const PLACES: usize> fmt::Display for Decimal<PLACES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.sign_plus() { write!(f, "{:+.PLACES$}", self.0) } else { write!(f, "{:.PLACES$}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_decimals_in_json() {
        for number in [0.05, 1.245, 123_456.789_012, -0.04, f64::INFINITY, 1e-9] {
            let decimal = Decimal::<3>::from(number);
            let json = serde_json::to_string(&decimal).expect("a number");
            assert_eq!(serde_json::from_str::<Decimal<3>>(&json).expect("a number"), decimal, "{json}");
            assert_eq!(decimal.to_string(), format!("{number:.3}"));
        }
        assert_eq!(format!("{:+}", Decimal::<1>::from(3.12)), "+3.1");
    }
}
