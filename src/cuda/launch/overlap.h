// Launches that do not wait for the kernel before them.
#pragma once

namespace saccade {

/// Whether a kernel may start before the one before it in its stream has ended, and wait inside (see
/// ptx/dependent_launch.h). Outside of graphs that saves the driver a tenth of a launch's time. In a graph it
/// makes edges of another kind than programs that look at graphs may expect, so there it has to be asked for.
enum class Overlap { never, in_graphs_too, outside_graphs };

}  // namespace saccade
