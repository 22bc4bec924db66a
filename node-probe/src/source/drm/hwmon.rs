//! The sensors of a GPU: `device/hwmon/hwmonN`, whose temperatures are known by their labels.

use super::attribute::{self, Attribute};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Highest number of a temperature sensor that is looked for.
const MAX_TEMPERATURES: u32 = 12;

/// The folder of the sensors, if the driver provides one.
#[derive(Clone, Debug)]
pub struct Hwmon(Option<PathBuf>);

impl Hwmon {
    /// Finds the sensors of a device.
    pub fn of(device: &Path) -> Self {
        let entries = fs::read_dir(device.join("hwmon")).into_iter().flatten().take(64);
        let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_hwmon = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("hwmon"))
        };
        Self(folders.filter(is_hwmon).min())
    }

    /// Opens an attribute: `power1_cap`.
    pub fn open(&self, name: &str) -> Attribute {
        self.path(name).map_or_else(Attribute::missing, |path| Attribute::open(&path))
    }

    /// Returns the path of an attribute.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.as_ref().map(|folder| folder.join(name))
    }

    /// Returns the number of the temperature sensor with this label: 2 for `junction`.
    pub fn temperature(&self, label: &str) -> Option<u32> {
        (1..=MAX_TEMPERATURES).find(|number| {
            let path = self.path(&format!("temp{number}_label"));
            path.is_some_and(|path| attribute::read_text(&path).is_ok_and(|text| text == label))
        })
    }

    /// Opens an attribute of a temperature sensor: `input`, `crit`, `emergency`.
    pub fn open_temperature(&self, number: Option<u32>, attribute: &str) -> Attribute {
        number.map_or_else(Attribute::missing, |number| self.open(&format!("temp{number}_{attribute}")))
    }
}
