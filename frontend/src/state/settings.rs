//! The user's settings: stored in the browser and applied to the style sheets.

use crate::domain::colour_scheme::ColourScheme;
use crate::platform;
use leptos::prelude::*;

/// Dark, light, or as the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// The system's theme.
    #[default]
    System,
    /// Dark.
    Dark,
    /// Light.
    Light,
}

impl Theme {
    /// Every theme, in the order of the key `t`.
    pub const ALL: [Self; 3] = [Self::System, Self::Dark, Self::Light];

    /// Returns its name in storage and in the style sheet; the system's has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Dark => Some("dark"),
            Self::Light => Some("light"),
        }
    }

    fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.name() == Some(name)).unwrap_or_default()
    }

    /// Returns the title that the page shows.
    pub fn title(self) -> &'static str {
        match self {
            Self::System => "System",
            Self::Dark => "Dark",
            Self::Light => "Light",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::System => Self::Dark,
            Self::Dark => Self::Light,
            Self::Light => Self::System,
        }
    }
}

const THEME: &str = "nodeglass-theme";
const SCHEME: &str = "nodeglass-scheme";
const NOTIFY: &str = "nodeglass-notify";

/// The settings of this browser.
#[derive(Clone, Copy)]
pub struct Settings {
    theme: RwSignal<Theme>,
    scheme: RwSignal<ColourScheme>,
    notify: RwSignal<bool>,
}

impl Settings {
    /// Loads and applies the stored settings.
    pub fn load() -> Self {
        let load_item = |name| platform::load_item(platform::local(), name).unwrap_or_default();
        let theme = Theme::from_name(&load_item(THEME));
        let scheme = ColourScheme::from_name(&load_item(SCHEME)).unwrap_or_default();
        let settings = Self {
            theme: RwSignal::new(theme),
            scheme: RwSignal::new(scheme),
            notify: RwSignal::new(load_item(NOTIFY) == "yes"),
        };
        settings.apply();
        settings
    }

    /// Returns the theme.
    pub fn theme(&self) -> Theme {
        self.theme.get()
    }

    /// Returns the colour scheme.
    pub fn scheme(&self) -> ColourScheme {
        self.scheme.get()
    }

    /// Returns whether the user wants notifications; the browser may still deny them.
    pub fn notify(&self) -> bool {
        self.notify.get()
    }

    /// Switches to the next theme.
    pub fn next_theme(&self) {
        self.set_theme(self.theme.get_untracked().next());
    }

    /// Sets the theme.
    pub fn set_theme(&self, theme: Theme) {
        self.theme.set(theme);
        platform::store_item(platform::local(), THEME, theme.name().unwrap_or_default());
        self.apply();
    }

    /// Switches to the next colour scheme.
    pub fn next_scheme(&self) {
        self.set_scheme(self.scheme.get_untracked().next());
    }

    /// Sets the colour scheme.
    pub fn set_scheme(&self, scheme: ColourScheme) {
        self.scheme.set(scheme);
        platform::store_item(platform::local(), SCHEME, &scheme.name());
        self.apply();
    }

    /// Sets whether notifications are wanted.
    pub fn set_notify(&self, wanted: bool) {
        self.notify.set(wanted);
        platform::store_item(platform::local(), NOTIFY, if wanted { "yes" } else { "no" });
    }

    fn apply(&self) {
        platform::set_root_attribute("data-theme", self.theme.get_untracked().name());
        platform::set_root_attribute("data-scheme", Some(self.scheme.get_untracked().colours()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_theme_is_found_again() {
        for theme in Theme::ALL {
            assert_eq!(Theme::from_name(theme.name().unwrap_or_default()), theme);
        }
        assert_eq!(Theme::from_name("sepia"), Theme::System);
    }
}
