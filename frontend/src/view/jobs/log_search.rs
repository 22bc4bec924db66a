//! The search in a log: what is searched, the lines found, and the steps between them.

use crate::domain::log_lines::{contains, current_hit, neighbouring_hit, next_hit, severity};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use leptos::html::Input;
use leptos::prelude::*;

/// One line: its number in the log, and its text.
pub(super) type Line = (u64, String);

/// The search in a log. Without a text, it finds the errors.
#[derive(Clone, Copy)]
pub(super) struct LogSearch {
    /// The searched text; empty without a search.
    pub(super) query: RwSignal<String>,
    /// The line at which the search is.
    pub(super) current: Memo<Option<u64>>,
    /// The lines that were found, in order.
    hits: Memo<Vec<u64>>,
    chosen: RwSignal<Option<u64>>,
    follows: RwSignal<bool>,
    /// Whether the log was followed before it was searched.
    followed: StoredValue<bool>,
}

impl LogSearch {
    /// Creates the search in `lines`. A search sets `follows` to false, and restores it at its end.
    /// It begins at the line in `chosen`, if there is one.
    pub(super) fn new(
        lines: Memo<Vec<Line>>,
        follows: RwSignal<bool>,
        chosen: RwSignal<Option<u64>>,
    ) -> Self {
        let query = RwSignal::new(String::new());
        let hits: Memo<Vec<u64>> = Memo::new(move |_| {
            query.with(|query| {
                let found = |(_, line): &&Line| match query.is_empty() {
                    true => severity(line) == Some(Severity::Error),
                    false => contains(line, query),
                };
                lines.with(|lines| lines.iter().filter(found).map(|(number, _)| *number).collect())
            })
        });
        let current = Memo::new(move |_| {
            let (chosen, is_searching) = (chosen.get(), query.with(|query| !query.is_empty()));
            if is_searching { hits.with(|hits| current_hit(hits, chosen)) } else { chosen }
        });
        let search = Self { query, current, hits, chosen, follows, followed: StoredValue::new(true) };
        search.reveal_current();
        search.step_by_keyboard();
        search
    }

    /// Scrolls to the current line whenever it changes.
    fn reveal_current(self) {
        platform::effect(move || {
            if let Some(number) = self.current.get() {
                self.follows.set(false);
                platform::on_next_frame(move || platform::scroll_to_id(&format!("log-{number}")));
            }
        });
    }

    /// Steps at the page's keys.
    fn step_by_keyboard(self) {
        let page = Page::from_context();
        platform::effect(move || {
            if let Some(by) = page.log_step.get() {
                page.log_step.set(None);
                if !self.step_on(by) {
                    page.go_to_problem(by);
                }
            }
        });
    }

    /// Goes to the next line that was found, or to the one before. Returns whether it did: without a search, not past the
    /// last error.
    fn step_on(self, by: isize) -> bool {
        if self.query.with_untracked(|query| !query.is_empty()) {
            self.step(by);
            return true;
        }
        let current = self.current.get_untracked();
        let next = self.hits.with_untracked(|hits| next_hit(hits, current, by));
        if next.is_some() {
            self.chosen.set(next);
        }
        next.is_some()
    }

    /// Goes to the next line that was found, or to the one before.
    fn step(self, by: isize) {
        let current = self.current.get_untracked();
        let next = self.hits.with_untracked(|hits| neighbouring_hit(hits, current, by));
        if next.is_some() {
            self.chosen.set(next);
        }
    }

    /// Searches a text; an empty one ends the search.
    fn search(self, text: String) {
        let was_searching = self.query.with_untracked(|query| !query.is_empty());
        let is_searching = !text.is_empty();
        if is_searching && !was_searching {
            self.followed.set_value(self.follows.get_untracked());
        }
        self.query.set(text);
        // Lines that arrive later do not move the search.
        let last = self.hits.with_untracked(|hits| hits.last().copied());
        self.chosen.set(last.filter(|_| is_searching));
        if was_searching && !is_searching {
            self.follows.set(self.followed.get_value());
        }
    }

    /// Describes which of how many lines is current.
    fn position_text(self) -> String {
        let is_searching = self.query.with(|query| !query.is_empty());
        let count = self.hits.with(Vec::len);
        let at = self.current.get().and_then(|line| self.hits.with(|hits| hits.binary_search(&line).ok()));
        match at {
            None if is_searching => "no matches".to_owned(),
            None => String::new(),
            Some(at) => {
                let what = if is_searching { "" } else { "error " };
                format!("{what}{} of {}", text::grouped(at as u64 + 1), text::grouped(count as u64))
            }
        }
    }

    /// Returns the field for the text, and the buttons for the steps.
    pub(super) fn controls(self) -> AnyView {
        let field = NodeRef::<Input>::new();
        let on_key = move |event: web_sys::KeyboardEvent| match event.key().as_str() {
            "Enter" => self.step(if event.shift_key() { -1 } else { 1 }),
            "Escape" => {
                self.search(String::new());
                if let Some(input) = field.get_untracked() {
                    input.set_value("");
                    let _ = input.blur();
                }
            }
            _ => {}
        };
        let none = move || self.hits.with(Vec::is_empty);
        view! {
            <input
                class="field"
                type="search"
                node_ref=field
                placeholder="Search these lines  /"
                aria-label="Search these lines"
                on:input=move |event| self.search(event_target_value(&event))
                on:keydown=on_key
            />
            <span class="logs__found" role="status">{move || self.position_text()}</span>
            <button class="btn" title="Match above, or error without a search (N, or Shift Enter in the search field)" aria-label="↑ Previous N" disabled=none on:click=move |_| self.step(-1)>
                "↑ " <span class="hide-s">"Previous "</span><kbd class="hide-s">"N"</kbd>
            </button>
            <button class="btn" title="Match below, or error without a search (n, or Enter in the search field)" aria-label="↓ Next n" disabled=none on:click=move |_| self.step(1)>
                "↓ " <span class="hide-s">"Next "</span><kbd class="hide-s">"n"</kbd>
            </button>
        }
        .into_any()
    }
}
