"""The URL parser of libcurl."""

import ctypes
import ctypes.util


class CurlUrls:
    """Reads URLs with libcurl."""

    URL, HOST, PORT, PATH, QUERY = 0, 5, 6, 7, 8
    NON_SUPPORT_SCHEME, PATH_AS_IS = 1 << 3, 1 << 4

    def __init__(self) -> None:
        self.library = ctypes.CDLL(ctypes.util.find_library("curl") or "libcurl.so.4")
        self.library.curl_url.restype = ctypes.c_void_p
        for function in ("curl_url_cleanup", "curl_url_set", "curl_url_get"):
            getattr(self.library, function).argtypes = None
        self.library.curl_url_cleanup.restype = None

    def read(self, text: str, parts: list[int], flags: int = 0) -> list[str | None] | None:
        """Return the parts of a URL, or None if libcurl refuses it."""
        if "\0" in text:
            return None
        handle = ctypes.c_void_p(self.library.curl_url())
        try:
            if self.library.curl_url_set(handle, self.URL, text.encode(), flags) != 0:
                return None
            return [self._part(handle, part) for part in parts]
        finally:
            self.library.curl_url_cleanup(handle)

    def _part(self, handle: ctypes.c_void_p, part: int) -> str | None:
        value = ctypes.c_char_p()
        if self.library.curl_url_get(handle, part, ctypes.byref(value), 0) != 0:
            return None
        text = (value.value or b"").decode(errors="replace")
        self.library.curl_free(value)
        return text
