//! Wire messages of Headwater and their conversions.
