//! The operator's watches, which can be made to lag behind and be cut.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::stream;
use http::Uri;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;

use super::proxy::BoxError;

/// All watches that lead through a proxy.
#[derive(Default)]
pub struct Watches {
    flow: watch::Sender<Flow>,
    known: Mutex<Known>,
}

/// What the bodies of answers look at.
#[derive(Clone, Debug, Default)]
struct Flow {
    /// How often all were cut.
    cuts: usize,
    withheld: Withheld,
}

#[derive(Clone, Debug, Default)]
enum Withheld {
    #[default]
    Nothing,
    Everything,
    Path(String),
}

/// What was asked for.
#[derive(Debug, Default)]
struct Known {
    paths: BTreeSet<String>,
    /// Those that cannot be taken up where they were cut.
    expired: BTreeSet<String>,
    /// How often something was withheld.
    turn: usize,
}

impl Watches {
    /// Whether this asks for a watch.
    pub fn is_one(uri: &Uri) -> bool {
        let query = uri.query().unwrap_or_default();
        query.split('&').any(|pair| pair == "watch=true")
    }

    /// A watch begins; the end of it, if the version from which it is to go on has expired.
    pub fn begin(&self, path: &str) -> Option<Bytes> {
        let mut known = self.known();
        known.paths.insert(path.to_owned());
        known.expired.remove(path).then(|| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "expired on purpose", "reason": "Expired", "code": 410,
            });
            Bytes::from(format!(
                "{}\n",
                json!({ "type": "ERROR", "object": status })
            ))
        })
    }

    /// The answer to a watch, as long as it is not cut, and when it is not withheld.
    pub fn follow(&self, path: String, body: Body) -> UnsyncBoxBody<Bytes, BoxError> {
        let flow = self.flow.subscribe();
        let cuts = flow.borrow().cuts;
        let frames = stream::try_unfold(body, move |mut body| {
            let (mut flow, mut cut, path) = (flow.clone(), flow.clone(), path.clone());
            async move {
                let next = async {
                    let frame = body.frame().await;
                    // An error means that the run is over.
                    let _ = flow.wait_for(|flow| !flow.withholds(&path)).await;
                    frame
                };
                let frame: Option<Frame<Bytes>> = tokio::select! {
                    frame = next => frame.transpose()?,
                    _ = cut.wait_for(|flow| flow.cuts != cuts) => Err("cut on purpose")?,
                };
                Ok::<_, BoxError>(frame.map(|frame| (frame, body)))
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Withholds what all watches tell, or what one of them tells, each time another, until it is
    /// released.
    pub fn withhold(&self) {
        let withheld = {
            let mut known = self.known();
            let turn = known.turn % (known.paths.len() + 1);
            known.turn += 1;
            let one = turn
                .checked_sub(1)
                .and_then(|turn| known.paths.iter().nth(turn));
            one.map_or(Withheld::Everything, |path| Withheld::Path(path.clone()))
        };
        self.flow.send_modify(|flow| flow.withheld = withheld);
    }

    /// Tells what was withheld.
    pub fn release(&self) {
        self.flow
            .send_modify(|flow| flow.withheld = Withheld::Nothing);
    }

    /// Ends all; every other time they cannot go on from where they were.
    pub fn cut(&self) {
        let mut known = self.known();
        if self.flow.borrow().cuts % 2 == 1 {
            let Known { paths, expired, .. } = &mut *known;
            expired.clone_from(paths);
        }
        self.flow.send_modify(|flow| flow.cuts += 1);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    fn withholds(&self, path: &str) -> bool {
        match &self.withheld {
            Withheld::Nothing => false,
            Withheld::Everything => true,
            Withheld::Path(withheld) => withheld == path,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_watch_is_known_by_its_query() {
        let is_one = |uri: &'static str| Watches::is_one(&Uri::from_static(uri));
        assert!(is_one("/api/v1/pods?&watch=true&timeoutSeconds=290"));
        assert!(!is_one("/api/v1/pods?&limit=100"));
    }

    #[tokio::test]
    async fn what_is_withheld_comes_when_it_is_released() {
        let watches = Watches::default();
        watches.begin("/pods");
        let mut body = watches.follow("/pods".to_owned(), Body::from(b"event".to_vec()));
        watches.withhold();
        assert!(body.frame().now_or_never().is_none());
        watches.release();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "event");
    }

    #[tokio::test]
    async fn every_second_cut_cannot_be_taken_up_again() {
        let watches = Watches::default();
        for expired in [false, true, false] {
            assert!(watches.begin("/pods").is_none());
            let mut body = watches.follow("/pods".to_owned(), Body::from(Vec::new()));
            watches.withhold();
            watches.cut();
            assert!(body.frame().await.unwrap().is_err());
            assert_eq!(watches.begin("/pods").is_some(), expired);
            watches.release();
        }
    }
}
