//! The sensors of a GPU: `device/hwmon/hwmonN`, whose temperatures are known by their labels.

use super::attribute::{self, Attribute};
use super::card;
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
    /// Finds the sensors that a driver registers for a device under its own name. i915 also registers sensors of each
    /// GT (`i915_gt0`), in folders whose numbers may be lower after the driver was reloaded.
    pub fn of(device: &Path, driver: &str) -> Self {
        let folder = device.join("hwmon");
        let entries = fs::read_dir(&folder).into_iter().flatten().take(64);
        let numbers = entries.filter_map(|entry| card::number(entry.ok()?.file_name().to_str()?, "hwmon"));
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        let folders: Vec<_> =
            numbers.into_iter().map(|number| folder.join(format!("hwmon{number}"))).collect();
        let is_of_driver =
            |path: &&PathBuf| attribute::read_text(&path.join("name")).is_ok_and(|name| name == driver);
        Self(folders.iter().find(is_of_driver).or(folders.first()).cloned())
    }

    /// No sensors.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Returns whether the driver provides sensors.
    pub const fn exists(&self) -> bool {
        self.0.is_some()
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
