//! Serving a prepared mount: its threads, and its end.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::mount::MntFlags;
use parking_lot::Mutex;
use sfs_core::Volume;
use sfs_fuse::Pauser;

use super::own_mount::OwnMount;
use super::prepared::Prepared;
use super::request::MountRequest;
use crate::background::Background;
use crate::bdi;
use crate::control::{ControlHandler, ControlServer, ControlSocket};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::freeze::ThawReason;
use crate::handover::giving::Giver;
use crate::handover::taking::Taken;
use crate::handover::turn::Turn;
use crate::health_log::HealthLog;
use crate::inspect::scrubber::Scrubber;
use crate::log_thread::{LogThread, LogWork};
use crate::metrics::MetricsServer;
use crate::mounted_volume::MountedVolume;
use crate::ready_pipe::ReadyPipe;
use crate::recent_cleanings::RecentCleanings;
use crate::survival::{CommitThread, Journal};
use crate::timed_device::TimedDevice;

/// Time between two looks at threads that start.
const LOOK: Duration = Duration::from_micros(200);

impl Prepared {
    /// Serves the mount to its end.
    pub(super) fn serve(
        self,
        request: &MountRequest,
        dir: &Path,
        pipe: &mut ReadyPipe,
        taken: Option<&Taken>,
    ) -> Result<(), ExitError> {
        let Self { volume, name, own, waker, freezer, .. } = &self;
        let (volume, name, own) = (volume.clone(), name.clone(), own.clone());
        let (waker, freezer, bdi) = (waker.clone(), freezer.clone(), self.bdi.clone());
        let lost_writeback = self.shell.lost_writeback.clone();
        let no_thread = |error| ExitError::system(format_args!("cannot start a thread: {error}"));
        let thawing = freezer.clone();
        let turn = Arc::new(Turn::default());
        own.unmount_on(self.signals, turn.clone(), move || {
            thawing.thaw(ThawReason::Unmount);
        })?;
        let watched = (volume.clone(), self.timed, self.log_work.clone());
        let look = watch(watched, self.journal.clone(), name.clone());
        let log_thread = LogThread::start(volume.clone(), self.log_work.clone(), waker.clone());
        let log_thread = log_thread.map_err(no_thread)?;
        let background =
            Background::start(volume.clone(), waker.clone(), bdi.clone(), name.clone(), look);
        let background = background.map_err(no_thread)?;
        if let Some(cache) = &self.cache {
            cache.start().map_err(no_thread)?;
        }
        if let Some(objects) = self.medium.objects() {
            objects.start().map_err(no_thread)?;
        }
        if let Some(warning) = &self.no_cache {
            tracing::warn!("{warning}");
        }
        let is_over = Arc::new(Mutex::new(false));
        let is_ending = Arc::new(AtomicBool::new(false));
        let scrubber = Arc::new(Scrubber::new(volume.clone(), name.clone()));
        let cleanings = Arc::new(RecentCleanings::default());
        volume.now().observe_cleaning(cleanings.clone());
        let (transport, reason) = (self.serving.transport, self.serving.reason.clone());
        let monitor = self.monitor.clone();
        let giver = Giver {
            volume: volume.clone(),
            device: self.device.clone(),
            name: name.clone(),
            monitor: self.monitor,
            pauser: self.serving.pauser(),
            reason: reason.clone(),
            waker: waker.clone(),
            log_work: self.log_work,
            freezer: freezer.clone(),
            scrubber: scrubber.clone(),
            bdi: bdi.clone(),
            handles: self.shell.handles,
            losses: lost_writeback.clone(),
            is_write_protected: self.is_write_protected,
            foreground: request.foreground,
            is_over: is_over.clone(),
            turn,
            number: own.number(),
            mounts: own.table(),
            survives: self.journal.is_some(),
            is_in_store: self.medium.is_store(),
            sends_again: self.serving.sends_again(),
            metrics: Mutex::new(self.sockets.metrics.duplicates()),
        };
        if let (Some(journal), None) = (&self.journal, taken) {
            let control = self.sockets.control.as_ref().and_then(ControlSocket::descriptor);
            let records = journal.descriptor().map_err(ExitError::system)?;
            let (state, descriptors) = giver.held(control, records)?;
            monitor.hold(state, &descriptors).map_err(|error| {
                ExitError::system(format_args!("the monitor cannot hold the mount: {error}"))
            })?;
        }
        let (journal, is_write_protected) = (self.journal.clone(), self.is_write_protected);
        let records = self.journal.map(CommitThread::start).transpose().map_err(no_thread)?;
        let handler = Arc::new(ControlHandler {
            volume: volume.clone(),
            freezer: freezer.clone(),
            recorder: self.shell.recorder,
            opened: self.device,
            waker,
            latencies: self.shell.latencies,
            reads: self.reads,
            cleanings,
            bdi: bdi.clone(),
            cache: self.cache,
            objects: self.medium.objects().cloned(),
            reader: self.medium.reader().cloned(),
            before: self.before,
            options: self.options,
            is_write_protected: self.is_write_protected,
            transport: (transport, reason),
            device: name.clone(),
            number: own.number(),
            mounts: own.table(),
            limits: self.limits,
            is_over: is_over.clone(),
            is_ending: is_ending.clone(),
            scrubber: scrubber.clone(),
            trimming: self.shell.trimming,
            giver,
            journal,
        });
        let held = taken.and(self.serving.pauser());
        held.iter().for_each(Pauser::hold);
        let resends = records.is_some() && self.serving.sends_again();
        let notifier = self.serving.notifier().filter(|_| resends);
        // The mount answers only once this thread runs.
        let (own_while_serving, serving) = (own.clone(), self.serving);
        let serve = move || serving.run(|error| own_while_serving.lose(error));
        let serving = std::thread::Builder::new().name("sfs-serve".into()).spawn(serve);
        let serving = serving.map_err(no_thread)?;
        if let (Some(taken), Some(held)) = (taken, held) {
            // Until then another program may go on with the mount, so no request is read, and no client is accepted.
            wait_for_threads(&held, &serving)?;
            taken.wait_for_go()?;
            if let Some(notifier) = notifier {
                // It fails after an unmount, and the threads end then.
                if let Err(error) = notifier.resend() {
                    tracing::warn!("{name}: requests were not sent again: {error}");
                }
            }
            held.release();
        }
        let control =
            self.sockets.control.and_then(|socket| start_control(dir, socket, handler.clone()));
        let report = move || handler.report_of_mount();
        let metrics = MetricsServer::start(&name, self.sockets.metrics, Arc::new(report));
        let answered = self.root.map_or(Ok(()), |root| wait_for_answer(root, &own));
        let answered = answered.inspect(|()| {
            bdi.configure(volume.now().certain_space().available_bytes());
            let warning = || format!("WARNING: {name} is write-protected, mounted read-only");
            let warnings = self.is_write_protected.then(warning).into_iter();
            let warnings = warnings.chain(self.too_large).chain(self.no_cache);
            pipe.report_ready(&warnings.collect::<Vec<_>>());
        });
        match (&answered, self.unannounced) {
            (Ok(()), Some(unannounced)) => unannounced.keep(),
            (_, unannounced) => drop(unannounced),
        }
        let survives = records.is_some();
        let outcome = join(serving, &own, &name, answered);
        own.end();
        self.medium.objects().into_iter().for_each(|objects| objects.begin_to_end());
        self.medium.reader().into_iter().for_each(|reader| reader.begin_to_end());
        if let Some(records) = records {
            records.stop();
        }
        is_ending.store(true, Ordering::Release);
        scrubber.begin_to_stop();
        drop(metrics);
        log_thread.stop();
        background.stop();
        *is_over.lock() = true;
        freezer.thaw(ThawReason::Unmount);
        let volume = volume.now();
        if survives && volume.is_read_only() && !is_write_protected {
            end_rest(&volume, &name);
        }
        let closed = close(&volume, &name);
        // Until then another program would write what only the records have.
        if survives {
            monitor.release();
        }
        if let Some(begun) = self.begun {
            begun.end();
        }
        let released = self.medium.objects().map_or(Ok(()), |objects| objects.end());
        let closed = match (closed, released) {
            // The cache lacks what the volume could not write.
            (Err(unwritten), Err(kept)) => {
                Err(ExitError::mount(format_args!("{unwritten}; {kept}")))
            }
            (closed, released) => closed.and(released),
        };
        // Finding the names of files with lost data may read the whole tree, so it comes after all data has been written.
        let lost = lost_writeback.report(&volume, dir);
        if !lost.unreported.is_empty() {
            tracing::error!("{name}: {lost}");
        }
        if let Some(control) = control {
            control.end(&closed, lost);
        }
        closed?;
        outcome.map_err(|error| {
            ExitError::system(format_args!("{}: the mount does not answer: {error}", dir.display()))
        })
    }
}

/// Waits until all threads of a session that is held have started.
fn wait_for_threads(held: &Pauser, serving: &JoinHandle<io::Result<()>>) -> Result<(), ExitError> {
    while !held.is_held() {
        if serving.is_finished() {
            return Err(ExitError::system("cannot start the threads that serve"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until the mount with the directory `root` answers.
fn wait_for_answer(root: File, own: &OwnMount) -> io::Result<()> {
    let dev = bdi::wait_for(&root)?;
    if own.has(dev) { Ok(()) } else { Err(ErrorKind::ConnectionAborted.into()) }
}

/// Waits until the mount has been served to its end. Returns the error of the session if the mount
/// has not answered (`answered`), was aborted or has lost requests.
fn join(
    serving: JoinHandle<io::Result<()>>,
    own: &OwnMount,
    name: &str,
    answered: io::Result<()>,
) -> io::Result<()> {
    let Ok(Err(error)) = serving.join() else { return answered };
    tracing::debug!("{name}: the session ended: {error}");
    let is_aborted = error.kind() == ErrorKind::ConnectionAborted;
    if is_aborted {
        // No process will answer requests to this mount.
        let _ = own.detach(MntFlags::MNT_DETACH);
    }
    if answered.is_err() || is_aborted || own.is_lost() { Err(error) } else { Ok(()) }
}

/// Returns a function that tells the volume how long writing takes, adjusts the length of batches, wakes the log's thread for
/// what the background has left to it, and logs what becomes wrong with the volume.
fn watch(
    (volume, timed, log_work): (Arc<MountedVolume>, Arc<TimedDevice>, Arc<LogWork>),
    journal: Option<Arc<Journal>>,
    name: String,
) -> impl FnMut() + Send + 'static {
    let mut log = HealthLog::default();
    move || {
        let volume = volume.now();
        timed.take_measurements().into_iter().for_each(|micros| volume.note_write_speed(micros));
        log_work.adjust(&volume);
        log_work.note(&volume);
        log.look(&volume, &name);
        journal.iter().for_each(|journal| journal.look());
    }
}

/// Lets the last checkpoint be written on a volume that rests, and whose daemon has died meanwhile.
fn end_rest(volume: &Volume, name: &str) {
    if let Err(error) = volume.begin_writing(file_clock::now(), &mut |_| {}) {
        tracing::error!("{name}: no last checkpoint: {error}");
    }
}

/// Writes the last checkpoint and closes the volume. An error is logged as well.
fn close(volume: &Volume, name: &str) -> Result<(), ExitError> {
    volume.close().map_err(|error| {
        let failure = match volume.is_closed() {
            true => format!(
                "{name}: {error}; the data that was not yet written is lost, and all other data is \
                 on the device; run sfs-fsck"
            ),
            false => format!(
                "{name}: the last checkpoint failed: {error}; the data written last may be lost"
            ),
        };
        tracing::error!("{failure}");
        ExitError::mount(failure)
    })
}

/// Starts the control socket. A mount works without one; programs that need it report that it is missing.
fn start_control(
    dir: &Path,
    socket: ControlSocket,
    handler: Arc<ControlHandler>,
) -> Option<ControlServer> {
    match socket.serve(handler) {
        Ok(control) => Some(control),
        Err(error) => {
            tracing::warn!("{}: no control socket: {error}", dir.display());
            None
        }
    }
}
