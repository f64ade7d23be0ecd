//! The models of a server: loaded when they are asked for, unloaded when nobody does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use crate::error::{ApiError, ServerError};
use crate::log::Log;
use crate::model::{Loaded, Model};
use crate::settings::Settings;

/// A model that can be loaded.
pub trait Source: Send + Sync + 'static {
    /// The name by which clients ask for it.
    fn id(&self) -> &str;

    /// Bytes that it will take, as far as they are known before it is loaded.
    fn bytes(&self) -> u64;

    /// Whether it answers conversations, as far as that is known before it is loaded.
    fn chats(&self) -> Option<bool> {
        None
    }

    /// Loads it. This may take long; it is called on a thread of its own.
    ///
    /// # Errors
    /// Whatever went wrong; it is written to the log, and clients are told that it did.
    fn load(&self) -> Result<Loaded, Box<dyn std::error::Error + Send + Sync>>;
}

/// How long a failure to load is told to clients before it is tried again.
const FAILED_PAUSE: Duration = Duration::from_secs(10);

/// What becomes of a model.
enum State {
    Unloaded,
    Loading,
    Ready(Arc<Model>),
    Failed { at: Instant, why: String },
}

struct Slot {
    source: Arc<dyn Source>,
    state: State,
    used: Instant,
}

/// All models of a server.
pub(crate) struct Models {
    slots: Mutex<BTreeMap<String, Slot>>,
    /// A model has been loaded or has failed to, or one is no longer used.
    changed: Notify,
    patience: Duration,
    budget: Option<u64>,
    idle: Option<Duration>,
    log: Log,
    /// When the server was started: what clients see as the time a model was made.
    pub(crate) created: u64,
}

/// A model's place in the list.
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) status: &'static str,
    /// Whether it answers conversations, where that is known.
    pub(crate) chats: Option<bool>,
    pub(crate) model: Option<Lease>,
}

/// A model in use: it is not unloaded.
pub(crate) struct Lease {
    /// Until it is dropped.
    model: Option<Arc<Model>>,
    models: Arc<Models>,
}

impl Lease {
    /// Does what takes a while on a thread of its own. The model is in use until that is done, even where the request is gone.
    pub(crate) async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&Model) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(Self, T), ApiError> {
        let done = tokio::task::spawn_blocking(move || work(&self).map(|done| (self, done))).await;
        done.map_err(|_| ApiError::internal())?
    }
}

impl std::ops::Deref for Lease {
    type Target = Arc<Model>;

    fn deref(&self) -> &Arc<Model> {
        self.model.as_ref().expect("only dropping takes the model")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.model = None;
        // Another model may wait for the room.
        if self.models.budget.is_some() {
            self.models.changed.notify_waiters();
        }
    }
}

/// What to do next for a request that wants a model.
enum Next {
    Use(Arc<Model>),
    Wait,
    Load(Arc<dyn Source>, Vec<Arc<Model>>),
}

impl Models {
    pub(crate) fn new(
        sources: Vec<Box<dyn Source>>,
        settings: &Settings,
        log: Log,
    ) -> Result<Self, ServerError> {
        let mut slots = BTreeMap::new();
        for source in sources {
            let id = source.id().to_owned();
            let slot = Slot { source: source.into(), state: State::Unloaded, used: Instant::now() };
            if slots.insert(id.clone(), slot).is_some() {
                return Err(ServerError::SameName { id });
            }
        }
        Ok(Self {
            slots: Mutex::new(slots),
            changed: Notify::new(),
            patience: settings.load_patience,
            budget: settings.models_memory,
            idle: settings.idle,
            log,
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn list(self: &Arc<Self>) -> Vec<Entry> {
        let entry = |(id, slot): (&String, &Slot)| {
            let (status, model) = match &slot.state {
                State::Unloaded => ("unloaded", None),
                State::Loading => ("loading", None),
                State::Ready(model) => ("loaded", Some(self.lease(Arc::clone(model)))),
                State::Failed { .. } => ("failed", None),
            };
            let chats = model.as_ref().map(|m| m.template.is_some()).or_else(|| slot.source.chats());
            Entry { id: id.clone(), status, chats, model }
        };
        self.lock().iter().map(entry).collect()
    }

    /// The model, loaded first if need be.
    pub(crate) async fn get(self: &Arc<Self>, id: &str) -> Result<Lease, ApiError> {
        let until = Instant::now() + self.patience;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            match self.next(id)? {
                Next::Use(model) => return Ok(self.lease(model)),
                Next::Load(source, others) => self.start_loading(source, others),
                Next::Wait => {}
            }
            if tokio::time::timeout_at(until.into(), changed).await.is_err() {
                let message = format!("The model '{id}' is being loaded. Try again later.");
                return Err(ApiError::unavailable("model_loading", message, 5));
            }
        }
    }

    /// Why a model could not be loaded, if that is so: for the operator, clients are not told.
    pub(crate) fn failure(&self, id: &str) -> Option<String> {
        match &self.lock().get(id)?.state {
            State::Failed { why, .. } => Some(why.clone()),
            _ => None,
        }
    }

    /// The only model, if there is one only: it need not be named.
    pub(crate) fn only(&self) -> Option<String> {
        let slots = self.lock();
        slots.keys().next().filter(|_| slots.len() == 1).cloned()
    }

    fn lease(self: &Arc<Self>, model: Arc<Model>) -> Lease {
        Lease { model: Some(model), models: Arc::clone(self) }
    }

    fn next(&self, id: &str) -> Result<Next, ApiError> {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(id) else {
            let known: Vec<&str> = slots.keys().map(String::as_str).collect();
            return Err(ApiError::no_model(id, &known));
        };
        slot.used = Instant::now();
        match &slot.state {
            State::Ready(model) => return Ok(Next::Use(Arc::clone(model))),
            State::Loading => return Ok(Next::Wait),
            State::Failed { at, .. } if at.elapsed() < FAILED_PAUSE => {
                let message = format!("The model '{id}' cannot be loaded. The server's log says why.");
                return Err(ApiError::unavailable("model_failed", message, FAILED_PAUSE.as_secs()));
            }
            State::Failed { .. } | State::Unloaded => {}
        }
        let source = Arc::clone(&slot.source);
        let Some(others) = self.make_room(&mut slots, source.bytes()) else {
            // Others are in use; when one no longer is, this one has its turn.
            return Ok(Next::Wait);
        };
        if let Some(slot) = slots.get_mut(id) {
            slot.state = State::Loading;
        }
        Ok(Next::Load(source, others))
    }

    /// Takes models that nobody uses out of their slots until `bytes` fit; `None` if they do not fit yet. What is larger than
    /// the budget by itself fits when it is alone.
    fn make_room(&self, slots: &mut BTreeMap<String, Slot>, bytes: u64) -> Option<Vec<Arc<Model>>> {
        let Some(budget) = self.budget else { return Some(Vec::new()) };
        let taken = |slots: &BTreeMap<String, Slot>| -> u64 {
            let bytes = |slot: &Slot| match &slot.state {
                State::Ready(model) => model.bytes.max(1),
                State::Loading => slot.source.bytes().max(1),
                _ => 0,
            };
            slots.values().map(bytes).fold(0, u64::saturating_add)
        };
        let mut unloaded = Vec::new();
        while taken(slots) > 0 && taken(slots).saturating_add(bytes) > budget {
            let idle = |slot: &&mut Slot| matches!(&slot.state, State::Ready(m) if Arc::strong_count(m) == 1);
            let Some(slot) = slots.values_mut().filter(idle).min_by_key(|slot| slot.used) else {
                // What was taken out is gone in any case: it was idle, and room is needed.
                self.discard(unloaded);
                return None;
            };
            if let State::Ready(model) = std::mem::replace(&mut slot.state, State::Unloaded) {
                unloaded.push(model);
            }
        }
        Some(unloaded)
    }

    fn discard(&self, models: Vec<Arc<Model>>) {
        for model in models {
            self.log.note(&format!("{} is unloaded", model.id));
            tokio::task::spawn_blocking(move || model.service.shutdown(Instant::now()));
        }
    }

    fn start_loading(self: &Arc<Self>, source: Arc<dyn Source>, others: Vec<Arc<Model>>) {
        let models = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            for model in others {
                models.log.note(&format!("{} is unloaded to make room", model.id));
                model.service.shutdown(Instant::now());
            }
            models.load(&source);
        });
    }

    /// Loads a model whose slot says that it is being loaded.
    fn load(&self, source: &Arc<dyn Source>) {
        let id = source.id();
        let started = Instant::now();
        let loading = || source.load().and_then(|loaded| Ok(Model::new(id.to_owned(), loaded)?));
        let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(loading));
        let mut grammars = None;
        let state = match loaded {
            Ok(Ok(model)) => {
                self.log.note(&format!(
                    "{id} is loaded ({:.1} s): {}",
                    started.elapsed().as_secs_f64(),
                    model.description
                ));
                grammars = Some(Arc::clone(&model.grammars));
                State::Ready(Arc::new(model))
            }
            Ok(Err(error)) => self.failed(id, chain(&*error)),
            Err(_) => self.failed(id, "the loader panicked".to_owned()),
        };
        if let Some(slot) = self.lock().get_mut(id) {
            slot.state = state;
            slot.used = Instant::now();
        }
        self.changed.notify_waiters();
        // Requests without a form of the answer need not wait for this; one with a form is told what hinders it.
        if let Some(grammars) = grammars {
            let _ = grammars.prepare();
        }
    }

    fn failed(&self, id: &str, why: String) -> State {
        self.log.note(&format!("{id} cannot be loaded: {why}"));
        State::Failed { at: Instant::now(), why }
    }

    /// Unloads what was not used for a while; called now and then.
    pub(crate) fn sweep(&self) {
        let Some(idle) = self.idle else { return };
        let mut unloaded = Vec::new();
        for slot in self.lock().values_mut() {
            let State::Ready(model) = &slot.state else { continue };
            if Arc::strong_count(model) > 1 {
                slot.used = Instant::now();
            } else if slot.used.elapsed() >= idle
                && let State::Ready(model) = std::mem::replace(&mut slot.state, State::Unloaded)
            {
                unloaded.push(model);
            }
        }
        self.discard(unloaded);
    }

    /// Ends all engines; answers under way have until `deadline`. Blocks.
    pub(crate) fn shutdown(&self, deadline: Instant) {
        let ready = |slot: &Slot| match &slot.state {
            State::Ready(model) => Some(Arc::clone(model)),
            _ => None,
        };
        let models: Vec<Arc<Model>> = self.lock().values().filter_map(ready).collect();
        std::thread::scope(|scope| {
            for model in &models {
                scope.spawn(|| model.service.shutdown(deadline));
            }
        });
    }
}

/// An error and its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        let said = current.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = current.source();
    }
    text
}
