#pragma once

namespace fake {

/// From now on the kernel refuses every new watch of files, as where a user has too many (fs.inotify.max_user_watches).
void refuse_watches(bool refuse);

}  // namespace fake
