// Linked into libtriage only: makes the Lua front end known to the runtime when the library is loaded.
