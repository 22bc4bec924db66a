//! Users and their GPUs, if the jobs of several users are watched: one row per user, which filters the table.

use crate::domain::other_users::UserTotals;
use crate::domain::text;
use crate::state::page::Page;
use leptos::prelude::*;

/// Number of users that are shown until the list is unfolded.
const FOLDED: usize = 8;
/// The query parameter of the filter of the table of jobs.
const JOB_FILTER: &str = "fj";

/// The users, those with most GPUs first; nothing if all jobs belong to one user.
#[component]
pub fn Users() -> impl IntoView {
    let page = Page::from_context();
    let (jobs, several_users) = (page.jobs, page.several_users);
    let users = Memo::new(move |_| jobs.with(|jobs| UserTotals::of_jobs(jobs)));
    let unfolded = RwSignal::new(false);
    let shown = move || {
        let count = if unfolded.get() { usize::MAX } else { FOLDED };
        users.with(|users| users.iter().take(count).map(|totals| totals.user.to_string()).collect::<Vec<_>>())
    };
    let more = move || {
        let rest = users.with(Vec::len).saturating_sub(FOLDED);
        (rest > 0).then(|| {
            let label = if unfolded.get() { "Show fewer".to_owned() } else { format!("+ {rest} more") };
            view! { <button class="attention__more" on:click=move |_| unfolded.update(|open| *open = !*open)>{label}</button> }
        })
    };
    let row = move |user: String| view! { <User user users/> }.into_any();
    move || {
        several_users.get().then(|| {
            view! {
                <section class="users" aria-label="Users">
                    <div class="machines__head">
                        <h2>"Users"</h2>
                        <span>"running jobs and their GPUs, as SLURM allocated them"</span>
                    </div>
                    <ul><For each=shown key=String::clone children=row/></ul>
                    {more}
                </section>
            }
            .into_any()
        })
    }
}

/// One user: a button that shows only the jobs of that user, or all again.
#[component]
fn User(user: String, users: Memo<Vec<UserTotals>>) -> impl IntoView {
    let page = Page::from_context();
    let name = user.clone();
    let totals = Memo::new(move |_| {
        users.with(|users| users.iter().find(|totals| totals.user.as_str() == name).cloned())
    });
    let of = move |read: fn(&UserTotals) -> String| move || totals.with(|totals| totals.as_ref().map(read));
    let (filter, current) = (format!("user=\"{user}\""), page.address.query(JOB_FILTER));
    let is_chosen = Memo::new({
        let filter = filter.clone();
        move |_| current.with(|current| current.as_deref() == Some(filter.as_str()))
    });
    let choose = move |_| {
        let filter = (!is_chosen.get_untracked()).then(|| filter.clone());
        page.address.push_query(JOB_FILTER, filter);
    };
    view! {
        <li>
            <button class="user" aria-pressed=move || is_chosen.get().to_string() title="Show only this user's jobs" on:click=choose>
                <b class="user__name">{user}</b>
                <span class="user__nodes">{of(UserTotals::nodes_text)}</span>
                <span class="user__gpus num">{of(UserTotals::gpus_text)}</span>
                <span class="num">{of(|totals| text::count(totals.running, "job", "jobs"))}</span>
                <span class="user__pending num">{of(|totals| if totals.pending > 0 { format!("{} waiting", totals.pending) } else { String::new() })}</span>
            </button>
        </li>
    }
}
