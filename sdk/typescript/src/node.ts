// The entry point on Node: everything, with a WebSocket that sends headers.
import { openNodeSocket } from "./node-socket.js";
import { setSocketOpener } from "./socket.js";

setSocketOpener(openNodeSocket);

export * from "./index.js";
