//! Notifications of changed directories.

use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// Longest wait for a thread that nothing holds up.
const WAIT: Duration = Duration::from_secs(60);

#[test]
fn a_notification_holds_no_other_change_up() {
    let mut scene = Scene::new();
    let (notified, seen) = mpsc::channel();
    let journal = scene.journal.clone();
    scene.shell.notify_by(Arc::new(move |ino| {
        let (begun, wait) = mpsc::channel();
        let journal = journal.clone();
        std::thread::spawn(move || {
            drop(journal.begin_unrecorded());
            begun.send(())
        });
        let outcome = wait.recv_timeout(WAIT);
        notified.send((ino, outcome)).map_err(std::io::Error::other)
    }));
    scene.make(CREATE, "file", 0o100_644);
    // Both are sent before the reply is returned.
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [(ROOT_INO, Ok(()))]);
    scene.unlink("file");
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [(ROOT_INO, Ok(()))]);
    let bytes = scene.message((UNLINK, ROOT_INO), &[b"file\0"]);
    let request = FuseRequest::decode(&bytes, FLAGS).expect("a request");
    scene.shell.answer(&request, &mut []).expect_err("it is gone");
    assert_eq!(seen.try_iter().count(), 0, "nothing was changed");
}

/// A daemon may die between the record of a reply and the notification.
#[test]
fn the_next_daemon_notifies_the_kernel_of_directories_again() {
    let mut scene = Scene::new();
    let made = scene.ask((MKDIR, ROOT_INO), &[&words([0o755, 0]), b"directory\0"]);
    let Ok(Reply::Entry(directory)) = made else { panic!("it is made") };
    let (node, _) = scene.make(CREATE, "file", 0o100_644);
    scene.write(node, b"content");
    let head = [longs([directory.node]), words([0, 0])].concat();
    scene.ask((RENAME, ROOT_INO), &[&head, b"file\0moved\0"]).expect("it is moved");
    scene.sync();
    let records = scene.journal.descriptor().expect("a descriptor");
    let volume = (scene.device.clone() as Arc<dyn Device>, VolumeOptions::default());
    drop((scene.shell, scene.journal));
    let (mut shell, journal, revival) = adopt(volume, records.into());
    let (notified, seen) = mpsc::channel();
    shell.notify_by(Arc::new(move |ino| notified.send(ino).map_err(std::io::Error::other)));
    shell.replay(&revival, FLAGS, &journal).expect("everything is in the log");
    let mut seen: Vec<u64> = seen.try_iter().collect();
    seen.sort_unstable();
    assert_eq!(seen, [ROOT_INO, directory.node]);
}
