//! The whole numbers in which a kubelet counts quantities: units and thousandths, rounded up.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::downward_api::number;

/// A number with more digits than a quantity has is the one that it was written as: `0.1` is no binary
/// fraction.
const WRITTEN: f64 = 1e-9;

/// The quantity in units, as `Quantity.Value` of Kubernetes; `None` if it is not a quantity. A number
/// that is too large is the largest one.
pub fn value(quantity: &Quantity) -> Option<i64> {
    rounded_up(number(quantity).ok()?)
}

/// The quantity in thousandths, as `Quantity.MilliValue` of Kubernetes.
pub fn milli_value(quantity: &Quantity) -> Option<i64> {
    rounded_up(number(quantity).ok()? * 1000.0)
}

fn rounded_up(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a float becomes the nearest number")]
    let whole = (number - WRITTEN).ceil() as i64;
    number.is_finite().then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_rounded_up_to_whole_numbers() {
        for (text, units, thousandths) in [
            ("1", Some(1), Some(1000)),
            ("100m", Some(1), Some(100)),
            ("0.1", Some(1), Some(100)),
            ("1.001", Some(2), Some(1001)),
            ("1u", Some(1), Some(1)),
            ("64Mi", Some(64 << 20), Some((64 << 20) * 1000)),
            ("-1", Some(-1), Some(-1000)),
            ("9E", Some(9_000_000_000_000_000_000), Some(i64::MAX)),
            ("0", Some(0), Some(0)),
            ("much", None, None),
            ("inf", None, None),
            ("", None, None),
        ] {
            let quantity = Quantity(text.to_owned());
            assert_eq!((value(&quantity), milli_value(&quantity)), (units, thousandths), "{text}");
        }
    }
}
