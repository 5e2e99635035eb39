//! Durations as people write them: `90s`, `7d`.

/// For `#[serde(with = "...")]`: a duration above zero, as text.
pub mod duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// The longest accepted duration: a century.
    const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// Writes the duration as `7d`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*duration))
    }

    /// Reads a duration like `90s` or `7d`.
    ///
    /// # Errors
    /// When the text is no duration, zero, or longer than a century.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        let duration = humantime::parse_duration(&text)
            .map_err(|error| D::Error::custom(format!("{text:?} is no duration: {error}")))?;
        if duration.is_zero() {
            return Err(D::Error::custom("a duration must not be zero"));
        }
        if duration > DURATION_MAX {
            let most = humantime::format_duration(DURATION_MAX);
            return Err(D::Error::custom(format!("{text:?} is too long: at most {most}")));
        }
        Ok(duration)
    }
}
