//! What the user chose is remembered by the browser and told to the style sheets.

use crate::browser;
use crate::scheme::Scheme;
use leptos::prelude::*;

/// Dark, light, or as the system says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// As the system says.
    #[default]
    System,
    /// Dark.
    Dark,
    /// Light.
    Light,
}

impl Theme {
    /// Name in storage and in the style sheet; the system's has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Dark => Some("dark"),
            Self::Light => Some("light"),
        }
    }

    /// What the user reads.
    pub fn title(self) -> &'static str {
        self.name().unwrap_or("system")
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

/// The settings of this browser.
#[derive(Clone, Copy)]
pub struct Settings {
    theme: RwSignal<Theme>,
    scheme: RwSignal<Scheme>,
}

impl Settings {
    /// What the browser remembers, put into force.
    pub fn recalled() -> Self {
        let recall = |name| browser::recall(browser::local(), name).unwrap_or_default();
        let theme = match recall(THEME).as_str() {
            "dark" => Theme::Dark,
            "light" => Theme::Light,
            _ => Theme::System,
        };
        let scheme = Scheme::of_name(&recall(SCHEME)).unwrap_or_default();
        let settings = Self { theme: RwSignal::new(theme), scheme: RwSignal::new(scheme) };
        settings.apply();
        settings
    }

    /// The theme.
    pub fn theme(&self) -> Theme {
        self.theme.get()
    }

    /// The colour scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme.get()
    }

    /// Goes on to the next theme.
    pub fn next_theme(&self) {
        self.theme.update(|theme| *theme = theme.next());
        browser::remember(browser::local(), THEME, self.theme.get_untracked().name().unwrap_or("system"));
        self.apply();
    }

    /// Goes on to the next colour scheme.
    pub fn next_scheme(&self) {
        self.scheme.update(|scheme| *scheme = scheme.next());
        browser::remember(browser::local(), SCHEME, self.scheme.get_untracked().name());
        self.apply();
    }

    fn apply(&self) {
        browser::set_root_attribute("data-theme", self.theme.get_untracked().name());
        browser::set_root_attribute("data-scheme", Some(self.scheme.get_untracked().name()));
    }
}
