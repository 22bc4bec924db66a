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
    /// Every theme, in the order in which the key `t` walks through them.
    pub const ALL: [Self; 3] = [Self::System, Self::Dark, Self::Light];

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
const NOTIFY: &str = "nodeglass-notify";

/// The settings of this browser.
#[derive(Clone, Copy)]
pub struct Settings {
    theme: RwSignal<Theme>,
    scheme: RwSignal<Scheme>,
    notify: RwSignal<bool>,
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
        let settings = Self {
            theme: RwSignal::new(theme),
            scheme: RwSignal::new(scheme),
            notify: RwSignal::new(recall(NOTIFY) == "yes"),
        };
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

    /// Whether the user wants notifications; the browser may still refuse them.
    pub fn notify(&self) -> bool {
        self.notify.get()
    }

    /// Goes on to the next theme.
    pub fn next_theme(&self) {
        self.set_theme(self.theme.get_untracked().next());
    }

    /// Puts a theme into force.
    pub fn set_theme(&self, theme: Theme) {
        self.theme.set(theme);
        browser::remember(browser::local(), THEME, theme.title());
        self.apply();
    }

    /// Goes on to the next colour scheme.
    pub fn next_scheme(&self) {
        self.set_scheme(self.scheme.get_untracked().next());
    }

    /// Puts a colour scheme into force.
    pub fn set_scheme(&self, scheme: Scheme) {
        self.scheme.set(scheme);
        browser::remember(browser::local(), SCHEME, &scheme.name());
        self.apply();
    }

    /// Remembers whether notifications are wanted.
    pub fn set_notify(&self, wanted: bool) {
        self.notify.set(wanted);
        browser::remember(browser::local(), NOTIFY, if wanted { "yes" } else { "no" });
    }

    fn apply(&self) {
        browser::set_root_attribute("data-theme", self.theme.get_untracked().name());
        browser::set_root_attribute("data-scheme", Some(self.scheme.get_untracked().colours()));
    }
}
