//! What a node of a test takes for pressure.

/// Settings of a node without pressure of its disk, which removes no images for room. The disk of the machine may be nearly
/// full, which is not what a test or a measurement is about.
pub const NO_DISK_PRESSURE: &str = "[pressure]\ndisk_available_percent = 0\nimages_available_percent = 0\n\
                                    [images]\ncollect_high_percent = 100\n";
