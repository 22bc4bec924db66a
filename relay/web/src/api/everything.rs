//! The snapshot of the fleet that requests read from.

use super::caller::Charge;
use super::problem::Problem;
use crate::WebState;
use nodeglass_protocol::Picture;
use nodeglass_share::Viewer;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for a snapshot from the event loop; it normally takes less than a tick.
const TIMEOUT: Duration = Duration::from_secs(5);

/// All that a viewer may see; the event loop's time is charged.
pub(super) async fn everything(
    web: &WebState,
    viewer: Viewer,
    charge: &mut Charge,
) -> Result<Box<Picture>, Problem> {
    let (picture, spent) = picture(web, viewer).await?;
    charge.restart();
    charge.add(spent);
    Ok(picture)
}

/// All that a viewer may see, and the time that the event loop spent on it.
pub(super) async fn picture(web: &WebState, viewer: Viewer) -> Result<(Box<Picture>, Duration), Problem> {
    let picture = timeout(TIMEOUT, web.hub.everything(viewer)).await;
    picture.ok().flatten().ok_or_else(Problem::shutting_down)
}
