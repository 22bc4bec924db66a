//! The license of a virtual machine for NVIDIA's vGPU software, from NVML's description of a licensable feature.

use nodeglass_protocol::gpu::VgpuLicense;
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper_sys::bindings as sys;

/// Converts a licensable feature, if it could be read.
pub fn of(feature: Reading<sys::nvmlGridLicensableFeature_t>) -> VgpuLicense {
    VgpuLicense {
        is_licensed: feature.clone().map(|feature| feature.featureState != 0),
        expires: match &feature {
            Reading::Value(feature) if feature.featureState == 0 => Reading::Unsupported,
            Reading::Value(feature) => {
                expiry(&feature.licenseExpiry).map_or(Reading::Unsupported, Reading::Value)
            }
            other => other.clone().map(|_| Text::default()),
        },
        product: feature.map(|feature| text(&feature.productName)),
    }
}

/// Text up to the first zero, or the end of the buffer. `c_char` is signed on x86-64 and unsigned on ARM.
fn text(buffer: &[std::ffi::c_char]) -> Text {
    let bytes = buffer.iter().flat_map(|byte| byte.to_ne_bytes());
    Text::from_bytes(&bytes.take_while(|byte| *byte != 0).collect::<Vec<_>>())
}

/// When a license expires; `None` if it does not, or if the time is impossible.
fn expiry(expiry: &sys::nvmlGridLicenseExpiry_t) -> Option<Text> {
    let sys::nvmlGridLicenseExpiry_t { year, month, day, hour, min, sec, status } = *expiry;
    let is_valid = u32::from(status) == sys::NVML_GRID_LICENSE_EXPIRY_VALID
        && (1..=9_999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (hour, min, sec) <= (23, 59, 60)
        && min <= 59
        && sec <= 60;
    is_valid.then(|| Text::new(format!("{year:04}-{month:02}-{day:02} {hour:02}:{min:02}:{sec:02}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: [u16; 5], year: u32, status: u8) -> Option<String> {
        let [month, day, hour, min, sec] = time;
        let expiry = expiry(&sys::nvmlGridLicenseExpiry_t { year, month, day, hour, min, sec, status });
        expiry.map(|text| text.to_string())
    }

    #[test]
    fn only_a_possible_time_is_an_expiry() {
        assert_eq!(at([9, 5, 7, 30, 0], 2026, 2).as_deref(), Some("2026-09-05 07:30:00"));
        for status in [0, 1, 3, 4, 255] {
            assert_eq!(at([9, 5, 7, 30, 0], 2026, status), None, "{status}");
        }
        for time in
            [[0, 5, 7, 30, 0], [13, 5, 7, 30, 0], [9, 0, 7, 30, 0], [9, 5, 24, 0, 0], [9, 5, 7, 60, 0]]
        {
            assert_eq!(at(time, 2026, 2), None, "{time:?}");
        }
        assert_eq!(at([9, 5, 7, 30, 0], u32::MAX, 2), None);
    }

    #[test]
    fn a_name_without_an_end_is_that_of_the_whole_buffer() {
        assert_eq!(text(&[65; 128]).as_str(), "A".repeat(128));
        assert_eq!(text(&[65, 0, 66]).as_str(), "A");
        assert_eq!(text(&[-1; 4]).as_str(), "\u{fffd}".repeat(4));
    }
}
